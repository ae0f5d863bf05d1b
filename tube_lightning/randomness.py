"""Every random number has a name: the streams that draws come from, in one table.

What belongs to a sequence comes from Philox4x64 (Salmon et al. 2011), which turns a key of two
words and a counter of four into numbers, without a state. The key is (seed, sequence id); for the
resamples it is (seed, item), and the blocks are those of all choices of the item. The counter's
first half counts the numbers of a place, its second half is the place and its stream:

    stream         third word      fourth   the numbers of a place
    reveal times   block           0        a time for each position, ordering after ordering
    hidden         2**32 + block   0        a rate, then one for each position, draw after draw
    tokens         block           1        one for each sampled token
    re-seeds       re-seed         2        places in the bank, block after block of the sequence
    shuffles       0               3        an order of the bank, block after block of the sequence
    resamples      block           4        places among a block's orderings, then levels of chi2

Blocks and re-seeds are below 2**32, so no two streams meet. Training draws from generators with a
state, a new one for each name: (seed, epoch) orders the sequences; (seed, 2 batch, rank) is the
noise of a training batch, and seeds torch's own generator for its dropout; (seed, 2 batch + 1,
rank) is the noise of a validation batch; torch's own with (seed) makes the first weights.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

ROOM = 1 << 32
"""Places of a stream."""
_WORD = 1 << 64


class Stream(NamedTuple):
    """Where the places of a stream are in the counter's second half."""

    name: str
    third: int
    fourth: int


REVEAL_TIMES = Stream("reveal times", third=0, fourth=0)
HIDDEN = Stream("hidden", third=ROOM, fourth=0)
TOKENS = Stream("tokens", third=0, fourth=1)
RESEEDS = Stream("re-seeds", third=0, fourth=2)
SHUFFLES = Stream("shuffles", third=0, fourth=3)
RESAMPLES = Stream("resamples", third=0, fourth=4)
STREAMS = (REVEAL_TIMES, HIDDEN, TOKENS, RESEEDS, SHUFFLES, RESAMPLES)


def uniforms(
    stream: Stream, seed: int, sequence: int, place: int, count: int
) -> Float64[np.ndarray, " count"]:
    """Draw u ~ Uniform[0, 1), a function of the names alone: fewer are the first of more.

    >>> few, many = (uniforms(TOKENS, 0, 7, 1, count) for count in (2, 9))
    >>> bool((few == many[:2]).all())
    True
    """
    for name, value, end in (
        ("seed", seed, _WORD),
        ("sequence", sequence, _WORD),
        (f"place of {stream.name}", place, ROOM),
    ):
        if not 0 <= value < end:
            bits = end.bit_length() - 1
            raise ValueError(f"{name}: expected an integer from 0 to 2**{bits} - 1, got {value}")
    key = np.array([seed, sequence], dtype=np.uint64)
    counter = np.array([0, 0, stream.third + place, stream.fourth], dtype=np.uint64)
    bits53 = np.random.Philox(key=key, counter=counter).random_raw(count) >> np.uint64(11)
    return np.asarray(bits53.astype(np.float64) * 2.0**-53)


def epoch_order(seed: int, epoch: int, num_sequences: int) -> Int64[np.ndarray, " sequences"]:
    """Draw the order in which an epoch of training sees the sequences."""
    return np.random.default_rng((seed, epoch)).permutation(num_sequences)


def noise_generator(seed: int, draw: int, rank: int) -> torch.Generator:
    """Make the source of noise of one batch of training on one rank: the host's on every device."""
    name = np.random.SeedSequence((seed, draw, rank)).generate_state(2)
    return torch.Generator().manual_seed(int(name[0]) << 31 ^ int(name[1]))
