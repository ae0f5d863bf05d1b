"""Revealed sets: what a network must see before each step, each distinct set once."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from tube_lightning.orderings.steps import NEVER

_MAX_CODE_BITS = 62


@dataclass(frozen=True)
class RevealedSets:
    """The distinct revealed sets of a collection of draws, grouped by block.

    Row r says: of block ``block[r]``, the positions ``revealed[r]`` are visible, and the network's
    log-probabilities at the positions ``needed[r]`` are used. ``index[i][b, k, d]`` is the row of
    the set revealed before the step of position d in draw k of block b, for the i-th regime.
    """

    revealed: Bool[Tensor, "rows size"]
    needed: Bool[Tensor, "rows size"]
    block: Int64[Tensor, " rows"]
    index: tuple[Int64[Tensor, "blocks orderings size"], ...]


def set_codes(steps: Int64[Tensor, "*batch size"]) -> Int64[Tensor, "*batch size"]:
    """Encode, for each position d, the set revealed before its step: bit e is position e.

    Position 0 is the lowest bit. For given and absent positions it is the set of given ones.

    >>> set_codes(torch.tensor([2, 0, 1])).tolist()  # order 1, 2, 0
    [6, 0, 2]
    """
    size = steps.shape[-1]
    if size > _MAX_CODE_BITS:
        raise ValueError(f"size: expected at most {_MAX_CODE_BITS} positions, got {size}")
    own_step = torch.where((steps < 0) | (steps == NEVER), 0, steps)
    codes = torch.zeros_like(steps)
    for position in range(size):
        codes += (steps[..., position : position + 1] < own_step).long() << position
    return codes


def all_sets(size: int) -> Bool[Tensor, "sets size"]:
    """List all subsets of a block in bit-mask order, True = revealed.

    >>> all_sets(2).tolist()
    [[False, False], [True, False], [False, True], [True, True]]
    """
    return decode_sets(torch.arange(2**size), size)


def decode_sets(codes: Int64[Tensor, "*batch"], size: int) -> Bool[Tensor, "*batch size"]:
    """Undo the bit-mask code of sets."""
    return (codes[..., None] >> torch.arange(size, device=codes.device)) % 2 == 1


def distinct_sets(*regimes: Int64[Tensor, "blocks orderings size"]) -> RevealedSets:
    """Collect the distinct revealed sets that the reveal steps of all ``regimes`` need.

    The T-step sets of a draw are prefixes of its ordering, so MDM regimes add no row to those of
    the any-order ARM on the same draws.
    """
    if not regimes:
        raise ValueError("regimes: expected the reveal steps of at least one, got none")
    num_blocks, _, size = regimes[0].shape
    block_bits = max(num_blocks - 1, 1).bit_length()
    if size + block_bits > _MAX_CODE_BITS:
        return _distinct_large_sets(regimes)
    block = torch.arange(num_blocks, device=regimes[0].device)[:, None, None] << size
    keys = [block + set_codes(steps) for steps in regimes]
    distinct, flat = torch.unique(torch.cat([k.flatten() for k in keys]), return_inverse=True)
    revealed = decode_sets(distinct % (1 << size), size)
    return _with_index(revealed, distinct >> size, flat, regimes)


def _distinct_large_sets(
    regimes: tuple[Int64[Tensor, "blocks orderings size"], ...],
) -> RevealedSets:
    """Compare sets that do not fit an integer as rows of bits."""
    rows = []
    for steps in regimes:
        own_step = torch.where((steps < 0) | (steps == NEVER), 0, steps)
        before = steps[..., None, :] < own_step[..., :, None]
        block = torch.arange(steps.shape[0], device=steps.device).view(-1, 1, 1, 1)
        rows.append(torch.cat([block.expand(*steps.shape, 1), before.long()], dim=-1).flatten(0, 2))
    distinct, flat = torch.unique(torch.cat(rows), dim=0, return_inverse=True)
    return _with_index(distinct[:, 1:] == 1, distinct[:, 0], flat, regimes)


def _with_index(
    revealed: Bool[Tensor, "rows size"],
    block: Int64[Tensor, " rows"],
    flat: Int64[Tensor, " entries"],
    regimes: tuple[Int64[Tensor, "blocks orderings size"], ...],
) -> RevealedSets:
    """Shape the flat inverse index by regime, and mark the entries that scored positions use."""
    pieces = flat.split([steps.numel() for steps in regimes])
    index = tuple(piece.view_as(steps) for piece, steps in zip(pieces, regimes, strict=True))
    needed = torch.zeros_like(revealed)
    positions = torch.arange(revealed.shape[1], device=revealed.device)
    for rows, steps in zip(index, regimes, strict=True):
        scored = (steps >= 0) & (steps != NEVER)
        needed[rows[scored], positions.expand_as(steps)[scored]] = True
    return RevealedSets(revealed, needed, block, index)
