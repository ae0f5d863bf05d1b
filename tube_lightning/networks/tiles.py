"""Tiles: how the kernel of shared-prefix attention cuts its work.

A tile is some whole rows of one sequence, or a part of a row that is longer than a tile.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int32
from torch import Tensor

from tube_lightning.networks.protocols import NoisyRows


class Tile(NamedTuple):
    """One shape of the kernel's work, and what Triton compiles it with."""

    queries: int
    keys: int
    """At a time."""
    num_warps: int
    num_stages: int


HALF = (torch.bfloat16, torch.float16)
TILES: dict[bool, dict[int, tuple[Tile, ...]]] = {
    # half precision? -> head width, padded -> tiles by number of queries
    True: {
        16: (Tile(16, 64, 4, 3), Tile(64, 64, 4, 3)),
        32: (Tile(16, 64, 4, 3), Tile(64, 64, 4, 3)),
        64: (Tile(16, 64, 4, 3), Tile(64, 64, 4, 3)),
        128: (Tile(16, 32, 4, 2), Tile(64, 32, 4, 3)),
        256: (Tile(16, 32, 8, 2), Tile(64, 16, 8, 2)),
    },
    False: {
        16: (Tile(16, 32, 4, 3), Tile(32, 32, 4, 2)),
        32: (Tile(16, 32, 4, 2), Tile(32, 32, 4, 2)),
        64: (Tile(16, 32, 4, 2), Tile(32, 32, 4, 2)),
        128: (Tile(16, 32, 8, 2),),
        256: (Tile(16, 16, 8, 2), Tile(32, 16, 8, 2)),
    },
}
"""Each compiles without spilled registers, in shared memory that all GPUs from sm_80 on have."""


def padded_width(width: int) -> int:
    """Return the width that a head is padded to: a power of two, and no less than a product takes.

    >>> [padded_width(width) for width in (1, 12, 64, 80)]
    [16, 16, 64, 128]
    """
    return max(16, 1 << (width - 1).bit_length())


def fits_kernel(dtype: torch.dtype, width: int) -> bool:
    """Say whether there are tiles for heads of this width."""
    return dtype in (*HALF, torch.float32) and padded_width(width) in TILES[dtype in HALF]


def choose_tile(dtype: torch.dtype, width: int, num_queries: int) -> Tile:
    """Choose the smallest tile that takes a sequence's queries at once, else the largest."""
    tiles = TILES[dtype in HALF][padded_width(width)]
    return next((tile for tile in tiles if tile.queries >= num_queries), tiles[-1])


class Cut(NamedTuple):
    """Rows in tiles, as the kernel reads them."""

    first: Int32[Tensor, " tiles"]
    last: Int32[Tensor, " tiles"]
    """The row after the last. There are as many tiles as there can be at most: some are empty."""
    sequence: Int32[Tensor, " rows"]
    start: Int32[Tensor, " rows"]


def cut_rows(rows: NoisyRows, batch: int, rows_per_tile: int) -> Cut:
    """Cut rows into tiles, never over the edge of a sequence.

    Where the rows are, and without asking: they must be in order (``NoisyRows.check_runs``).
    """
    sequence, device = rows.sequence.contiguous(), rows.sequence.device
    all_sequences = torch.arange(batch, device=device)
    begin = torch.searchsorted(sequence, all_sequences)
    end = torch.searchsorted(sequence, all_sequences, right=True)
    counts = (end - begin + rows_per_tile - 1) // rows_per_tile
    ends = counts.cumsum(0)
    tile = torch.arange(-(-len(sequence) // rows_per_tile) + batch, device=device)
    owner = torch.searchsorted(ends, tile, right=True).clamp(max=batch - 1)
    first = begin[owner] + (tile - ends[owner] + counts[owner]) * rows_per_tile
    last = torch.minimum(first + rows_per_tile, end[owner])
    return Cut(first.int(), last.int(), sequence.int(), rows.start.int())
