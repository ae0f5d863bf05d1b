"""The streams of random numbers: named in one table, and never the same number under two names."""

import itertools
import re

import numpy as np
import pytest

from tube_lightning import randomness
from tube_lightning.randomness import HIDDEN, ROOM, STREAMS, uniforms

EDGES = (0, 1, ROOM // 2, ROOM - 1)


def places(stream):
    """The range of 256-bit counters that a stream may use, by hand from the table."""
    first = (stream.fourth << 192) + (stream.third << 128)
    return range(first, first + (ROOM << 128))


def test_no_two_streams_overlap():
    """A counter belongs to at most one stream: ranges are disjoint."""
    ordered = sorted((places(stream) for stream in STREAMS), key=lambda r: r.start)
    for one, next_one in itertools.pairwise(ordered):
        assert one.stop <= next_one.start
    assert ordered[-1].stop <= 1 << 256


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
@pytest.mark.parametrize("place", EDGES)
def test_numbers_come_from_the_counters_of_the_table(stream, place):
    """Philox started at the place's counter by hand, also in the middle of its numbers."""
    got = uniforms(stream, 5, 2**64 - 1, place, 12)
    key = np.array([5, 2**64 - 1], dtype=np.uint64)
    for step in (0, 1):  # a step of the counter makes four numbers
        words = [step, 0, stream.third + place, stream.fourth]
        counter = np.array(words, dtype=np.uint64)
        raw = np.random.Philox(key=key, counter=counter).random_raw(12 - 4 * step)
        assert got[4 * step :].tolist() == [(int(word) >> 11) * 2.0**-53 for word in raw]


def test_no_number_occurs_twice():
    """3,840 draws of 53 bits: a repeat would be an accident of one in 10^9."""
    drawn = np.concatenate(
        [
            uniforms(stream, seed, sequence, place, 10)
            for stream in STREAMS
            for seed in (0, 1)
            for sequence in (0, 1, 2**40, 2**64 - 1)
            for place in (*EDGES, 2, 3, 4, 5)
        ]
    )
    assert len(np.unique(drawn)) == len(drawn) == 3840
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_the_table_in_the_docstring_is_the_code():
    rows = re.findall(
        r"^    (\S[\w -]*?)\s{2,}(2\*\*32 \+ )?(?:block|re-seed|0)\s+(\d)\s",
        randomness.__doc__,
        re.M,
    )
    table = {name: (2**32 if offset else 0, int(fourth)) for name, offset, fourth in rows}
    assert table == {s.name: (s.third, s.fourth) for s in STREAMS}


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ((-1, 0, 0), r"seed: expected an integer from 0 to 2\*\*64 - 1, got -1"),
        ((0, 2**64, 0), r"sequence: .* got 18446744073709551616"),
        ((0, 0, 2**32), r"place of hidden: expected .* 2\*\*32 - 1, got 4294967296"),
    ],
)
def test_names_outside_of_the_table_are_refused(names, match):
    with pytest.raises(ValueError, match=match):
        uniforms(HIDDEN, *names, 1)
