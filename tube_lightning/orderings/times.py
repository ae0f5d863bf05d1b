"""Reveal times: the one latent from which every regime reads its order."""

import itertools
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.orderings.roles import Role
from tube_lightning.randomness import REVEAL_TIMES, uniforms

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

    Each block has a stream of its own (``tube_lightning.randomness``), so that neither batch, rank,
    device nor global state enters. Orderings are drawn one after the other: the first 8 of 64 are
    the 8 of 8.

    >>> few, many = (
    ...     reveal_times(0, [7], num_orderings=n, size=4) for n in (8, 64)
    ... )
    >>> torch.equal(few, many[:, :, :8])
    True
    """
    sequences, blocks = list(sequences), list(blocks)
    if num_orderings < 1 or size < 1:
        raise ValueError(
            f"num_orderings, size: expected at least 1, got {num_orderings} and {size}"
        )
    times = np.empty((len(sequences), len(blocks), num_orderings, size))
    for (i, sequence), (j, block) in itertools.product(enumerate(sequences), enumerate(blocks)):
        times[i, j].flat = uniforms(REVEAL_TIMES, seed, sequence, block, times[i, j].size)
    return torch.from_numpy(times)


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


def left_to_right_times(
    roles: Int64[Tensor, "*batch size"],
) -> Float64[Tensor, "*batch size"]:
    """Return reveal times that walk through the scored positions from left to right, evenly.

    They are one fixed draw in every regime: in T steps, T runs of neighbours.

    >>> left_to_right_times(torch.tensor([Role.GIVEN, Role.SCORED, Role.SCORED])).tolist()
    [0.0, 0.25, 0.75]
    """
    scored = roles == Role.SCORED
    count = scored.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(scored, (scored.cumsum(dim=-1).double() - 0.5) / count, 0.0)
