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


def set_codes(revealed_at: Int64[Tensor, "*batch size"]) -> Int64[Tensor, "*batch size"]:
    """Encode, for each position d, the set revealed before its step: bit e is position e.

    Position 0 is the lowest bit. For given and absent positions it is the set of given ones.

    >>> set_codes(torch.tensor([2, 0, 1])).tolist()  # order 1, 2, 0
    [6, 0, 2]
    """
    _check_code_size(revealed_at.shape[-1])
    own_step = _own_step(revealed_at)
    codes = torch.zeros_like(revealed_at)
    for position in range(revealed_at.shape[-1]):
        codes += (revealed_at[..., position : position + 1] < own_step).long() << position
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


def encode_sets(sets: Bool[Tensor, "*batch size"]) -> Int64[Tensor, "*batch"]:
    """Write sets as bit masks; position 0 is the lowest bit."""
    _check_code_size(sets.shape[-1])
    codes = torch.zeros(sets.shape[:-1], dtype=torch.int64, device=sets.device)
    for position in range(sets.shape[-1]):
        codes += sets[..., position].long() << position
    return codes


def unique_sets(
    block: Int64[Tensor, " entries"], revealed: Bool[Tensor, "entries size"]
) -> tuple[Int64[Tensor, " rows"], Bool[Tensor, "rows size"], Int64[Tensor, " entries"]]:
    """Find the distinct (block, set) pairs, sorted by block, and the row of each entry."""
    size = revealed.shape[1]
    if _fits_code(int(block.max()) + 1 if len(block) else 1, size):
        return _unique_codes((block << size) + encode_sets(revealed), size)
    words = [encode_sets(some) for some in revealed.split(_MAX_CODE_BITS, dim=1)]
    distinct, row = torch.unique(torch.stack([block, *words], 1), dim=0, return_inverse=True)
    widths = [some.shape[1] for some in revealed[:0].split(_MAX_CODE_BITS, dim=1)]
    sets = [decode_sets(distinct[:, 1 + i], width) for i, width in enumerate(widths)]
    return distinct[:, 0], torch.cat(sets, dim=1), row


def _check_code_size(size: int) -> None:
    if size > _MAX_CODE_BITS:
        raise ValueError(f"size: expected at most {_MAX_CODE_BITS} positions, got {size}")


def _fits_code(num_blocks: int, size: int) -> bool:
    return size + num_blocks.bit_length() <= _MAX_CODE_BITS


def _unique_codes(
    codes: Int64[Tensor, " entries"], size: int
) -> tuple[Int64[Tensor, " rows"], Bool[Tensor, "rows size"], Int64[Tensor, " entries"]]:
    """Find the distinct ones among codes of block and set together."""
    distinct, row = torch.unique(codes, return_inverse=True)
    return distinct >> size, decode_sets(distinct % (1 << size), size), row


def distinct_sets(*regimes: Int64[Tensor, "blocks orderings size"]) -> RevealedSets:
    """Collect the distinct revealed sets that the reveal steps of all ``regimes`` need.

    The T-step sets of a draw are prefixes of its ordering, so MDM regimes add no row to those of
    the any-order ARM on the same draws.
    """
    if not regimes:
        raise ValueError("regimes: expected the reveal steps of at least one, got none")
    num_blocks, _, size = regimes[0].shape
    for revealed_at in regimes:
        if revealed_at.shape[::2] != (num_blocks, size):
            raise ValueError(
                f"regimes: expected {num_blocks} blocks of {size} in all of them, got shape "
                f"{tuple(revealed_at.shape)}"
            )
    blocks = torch.arange(num_blocks, device=regimes[0].device)
    if _fits_code(num_blocks, size):
        codes = [
            (blocks[:, None, None] << size) + set_codes(revealed_at) for revealed_at in regimes
        ]
        block, revealed, row = _unique_codes(torch.cat([c.flatten() for c in codes]), size)
    else:
        before = [_sets_before(revealed_at).flatten(0, 2) for revealed_at in regimes]
        owner = [blocks.repeat_interleave(revealed_at[0].numel()) for revealed_at in regimes]
        block, revealed, row = unique_sets(torch.cat(owner), torch.cat(before))
    pieces = row.split([revealed_at.numel() for revealed_at in regimes])
    index = tuple(
        piece.view_as(revealed_at) for piece, revealed_at in zip(pieces, regimes, strict=True)
    )
    needed = torch.zeros_like(revealed)
    positions = torch.arange(size, device=blocks.device)
    for rows, revealed_at in zip(index, regimes, strict=True):
        scored = (revealed_at >= 0) & (revealed_at != NEVER)
        needed[rows[scored], positions.expand_as(revealed_at)[scored]] = True
    return RevealedSets(revealed, needed, block, index)


def _sets_before(
    revealed_at: Int64[Tensor, "*batch size"],
) -> Bool[Tensor, "*batch size size"]:
    """Say for each position d (first axis) whether e (second) is revealed before its step."""
    return revealed_at[..., None, :] < _own_step(revealed_at)[..., :, None]


def _own_step(revealed_at: Int64[Tensor, "*batch size"]) -> Int64[Tensor, "*batch size"]:
    """Return each position's step; given and absent ones stand before the first."""
    return torch.where((revealed_at < 0) | (revealed_at == NEVER), 0, revealed_at)
