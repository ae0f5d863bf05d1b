"""Reveal times are a function of their name alone; all orderings; what a position is."""

import itertools
import math

import numpy as np
import pytest
import torch

from tube_lightning.orderings import Role, all_orderings, block_roles, reveal_steps, reveal_times

LARGEST = 2**64 - 1


def philox_words(seed, sequence, block, count):
    """Philox4x64-10 (Salmon et al. 2011) by its definition, in Python integers."""
    words = []
    for draw in range(1, count + 1):
        c0, c1, c2, c3 = draw, 0, block, 0
        k0, k1 = seed, sequence
        for _ in range(10):
            high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, 2**64)
            high1, low1 = divmod(0xCA5A826395121157 * c2, 2**64)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0 = (k0 + 0x9E3779B97F4A7C15) % 2**64
            k1 = (k1 + 0xBB67AE8584CAA73B) % 2**64
        words += [c0, c1, c2, c3]
    return words[:count]


@pytest.mark.parametrize(
    ("seed", "sequence", "block"),
    [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (42, 123_456, 31), (LARGEST, LARGEST, 2**32 - 1)],
)
def test_the_stream_is_philox(seed, sequence, block):
    times = reveal_times(seed, [sequence], [block], num_orderings=3, size=5)
    want = [(word >> 11) / 2**53 for word in philox_words(seed, sequence, block, 15)]
    assert times.flatten().tolist() == want


def test_frozen_values():
    """Published numbers depend on these: a change of any of them is a change of every result."""
    times = reveal_times(0, [0, 7], [0, 3], num_orderings=2, size=3)
    assert times.shape == (2, 2, 2, 3)
    assert times.dtype == torch.float64
    assert times[0, 0].tolist() == [
        [0.011546754286331562, 0.24154919656271812, 0.11142585551493822],
        [0.5644146216071337, 0.5023796042735054, 0.27760557688455356],
    ]
    assert times[0, 1, 0].tolist() == [0.0892717468838713, 0.0883633866688125, 0.9905266773448926]
    assert times[1, 0, 0].tolist() == [0.5844961951513712, 0.8909583303714613, 0.31891907377157325]
    assert times[1, 1, 1].tolist() == [0.5800394130070332, 0.2573049239638876, 0.4733765323303084]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_counts_are_nested(size):
    many = reveal_times(3, [5, 6], [0, 1], num_orderings=64, size=size)
    for few in (1, 2, 7, 8, 63):
        nested = reveal_times(3, [5, 6], [0, 1], num_orderings=few, size=size)
        assert torch.equal(nested, many[:, :, :few])


def test_the_batch_does_not_matter():
    sequences, blocks = [9, 2, 1000, 4], [5, 0, 3]
    together = reveal_times(1, sequences, blocks, num_orderings=4, size=3)
    for (i, sequence), (j, block) in itertools.product(enumerate(sequences), enumerate(blocks)):
        alone = reveal_times(1, [sequence], [block], num_orderings=4, size=3)
        assert torch.equal(together[i, j], alone[0, 0])


def test_generators_are_taken():
    lazy = reveal_times(0, iter([1, 2]), range(2), num_orderings=2, size=2)
    assert torch.equal(lazy, reveal_times(0, [1, 2], [0, 1], num_orderings=2, size=2))


def test_streams_differ():
    """Every (seed, sequence, block) has its own; also where their numbers are swapped."""
    names = list(itertools.product((0, 1, 2), repeat=3))
    streams = {
        tuple(reveal_times(seed, [sequence], [block], num_orderings=4, size=4).flatten().tolist())
        for seed, sequence, block in names
    }
    values = list(itertools.chain.from_iterable(streams))
    assert len(streams) == len(names)
    assert len(set(values)) == len(values) == 27 * 16


def test_global_randomness_neither_enters_nor_is_used():
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    first = reveal_times(5, [1], num_orderings=3, size=4)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    torch.manual_seed(2)
    np.random.seed(2)
    assert torch.equal(reveal_times(5, [1], num_orderings=3, size=4), first)


@pytest.mark.parametrize("over", ["orderings", "sequences", "blocks", "seeds"])
def test_times_are_uniform(over):
    """Along a stream and across streams: mean within 4 errors, Kolmogorov's D sqrt(n) below 1.95.

    (1.95 is the 0.1% point of its limit law.)
    """
    count = 4000
    match over:
        case "orderings":
            times = reveal_times(0, [0], num_orderings=count, size=1)
        case "sequences":
            times = reveal_times(0, range(count), num_orderings=1, size=1)
        case "blocks":
            times = reveal_times(0, [0], range(count), num_orderings=1, size=1)
        case "seeds":
            times = torch.cat(
                [reveal_times(seed, [0], num_orderings=1, size=1) for seed in range(count)]
            )
    values = times.flatten().sort().values
    assert values[0] >= 0
    assert values[-1] < 1
    assert abs(values.mean().item() - 0.5) < 4 / math.sqrt(12 * count)
    above = torch.arange(1, count + 1) / count - values
    distance = torch.maximum(above.max(), (1 / count - above).max()).item()
    assert distance * math.sqrt(count) < 1.95


@pytest.mark.parametrize("across", [False, True])
def test_all_orderings_are_equally_likely(across):
    """Chi-square over the 6 orders of three positions, 5 degrees: below 20.5, its 0.1% point."""
    count = 3000
    if across:
        times = reveal_times(0, range(count), num_orderings=1, size=3)
    else:
        times = reveal_times(0, [0], num_orderings=count, size=3)
    ranks = reveal_steps(times.view(count, 3)).tolist()
    observed = [ranks.count(list(order)) for order in itertools.permutations(range(3))]
    assert sum(observed) == count
    assert sum((n - count / 6) ** 2 / (count / 6) for n in observed) < 20.5


@pytest.mark.parametrize("value", [-1, 2**64])
def test_names_outside_64_bits(value):
    for name, names in (
        ("seed", (value, [0], [0])),
        ("sequence", (0, [1, value], [0])),
        ("place of reveal times", (0, [0], [2, value])),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: .* got {value}$"):
            reveal_times(*names, num_orderings=1, size=1)


def test_blocks_stay_clear_of_the_next_stream():
    with pytest.raises(
        ValueError, match=r"expected an integer from 0 to 2\*\*32 - 1, got 4294967296$"
    ):
        reveal_times(0, [0], [2**32], num_orderings=1, size=1)


@pytest.mark.parametrize(("num_orderings", "size"), [(0, 4), (3, 0), (-1, -2)])
def test_nothing_to_draw(num_orderings, size):
    with pytest.raises(ValueError, match=rf"got {num_orderings} and {size}$"):
        reveal_times(0, [0], num_orderings=num_orderings, size=size)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_all_orderings_are_all_once(size):
    orderings = all_orderings(size)
    assert orderings.dtype == torch.int64
    rows = [tuple(row) for row in orderings.tolist()]
    assert rows == sorted(set(rows))
    assert len(rows) == math.factorial(size)
    assert all(sorted(row) == list(range(size)) for row in rows)


@pytest.mark.parametrize("size", [-1, 0, 11])
def test_too_many_orderings_to_list(size):
    with pytest.raises(ValueError, match=rf"^size: .* got {size}$"):
        all_orderings(size)


@pytest.mark.parametrize("length", [1, 4, 7, 8, 9])
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("num_given", [0, 1])
def test_roles_of_a_sequence(length, block_size, num_given):
    roles = block_roles(length, block_size, num_given)
    assert roles.shape == (math.ceil(length / block_size), block_size)
    want = [Role.GIVEN] * num_given + [Role.SCORED] * (length - num_given)
    assert roles.flatten().tolist()[:length] == want
    assert set(roles.flatten().tolist()[length:]) <= {Role.ABSENT}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [((0, 4), "0 and 4"), ((4, 0), "4 and 0"), ((3, 2, 4), "4"), ((3, 2, -1), "-1")],
)
def test_roles_of_nothing(arguments, value):
    with pytest.raises(ValueError, match=rf"got {value}$"):
        block_roles(*arguments)
