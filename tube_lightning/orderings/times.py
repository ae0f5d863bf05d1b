"""Reveal times: the one latent from which every regime reads its order."""

import itertools
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

_MAX_ENUMERATED_SIZE = 10


def reveal_times(
    seed: int,
    sequences: Iterable[int],
    blocks: Iterable[int] = (0,),
    *,
    num_orderings: int,
    size: int,
) -> Float64[Tensor, "batch blocks orderings size"]:
    """Draw u ~ Uniform[0, 1) for every position, as a function of its name alone.

    The stream of one block is Philox4x64 with key (seed, sequence id) and the block number in
    the counter's upper half (Salmon et al. 2011), so streams never overlap, and neither batch,
    rank, device nor global state enters. Orderings are drawn one after the other: the first 8 of
    64 are the 8 of 8.

    >>> few, many = (
    ...     reveal_times(0, [7], num_orderings=n, size=4) for n in (8, 64)
    ... )
    >>> torch.equal(few, many[:, :, :8])
    True
    """
    sequences, blocks = list(sequences), list(blocks)
    for name, values in (("seed", [seed]), ("sequences", sequences), ("blocks", blocks)):
        for value in values:
            if not 0 <= value < 2**64:
                raise ValueError(f"{name}: expected integers from 0 to 2**64 - 1, got {value}")
    if num_orderings < 1 or size < 1:
        raise ValueError(
            f"num_orderings, size: expected at least 1, got {num_orderings} and {size}"
        )
    shape = len(sequences), len(blocks), num_orderings, size
    bits = np.empty(shape, dtype=np.uint64)
    for (i, sequence), (j, block) in itertools.product(enumerate(sequences), enumerate(blocks)):
        key = np.array([seed, sequence], dtype=np.uint64)
        counter = np.array([0, 0, block, 0], dtype=np.uint64)
        bits[i, j].flat = np.random.Philox(key=key, counter=counter).random_raw(bits[i, j].size)
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return torch.from_numpy(uniform)


def all_orderings(size: int) -> Int64[Tensor, "orderings size"]:
    """List all ``size``! orderings, lexicographically; entry t is the position revealed t-th.

    >>> all_orderings(3).tolist()[:2]
    [[0, 1, 2], [0, 2, 1]]
    """
    if not 1 <= size <= _MAX_ENUMERATED_SIZE:
        raise ValueError(
            f"size: expected 1 to {_MAX_ENUMERATED_SIZE} positions "
            f"(the number of orderings is its factorial), got {size}"
        )
    return torch.tensor(list(itertools.permutations(range(size))))
