"""Rows as the host plans them: which sets of which blocks go through a network, and in what pieces.

What a network asks about its rows besides their tensors (how many positions are needed, where one
block ends) the host knows from its plan. It sends the plan to the device once and cuts it there,
so that between micro-batches it never waits for an answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor

from tube_lightning.networks.protocols import BlockRun, NoisyRows
from tube_lightning.placement import send
from tube_lightning.records import map_tensors


@dataclass(frozen=True)
class PlannedRows:
    """Rows on the host: revealed sets of blocks, and where log-probabilities are needed."""

    block: Int64[Tensor, " rows"]
    """counts the blocks of all sequences, one sequence after the other"""
    revealed: Bool[Tensor, "rows size"]
    needed: Bool[Tensor, "rows size"]
    num_blocks: int
    """of each sequence"""
    exists: Bool[Tensor, "rows size"] | None = None
    """which positions there are; None if all"""

    @property
    def places(self) -> Int64[Tensor, " needed"]:
        """The needed positions, numbered through all rows."""
        return self.needed.flatten().nonzero()[:, 0]

    def micro_batches(
        self,
        tokens: Int64[Tensor, "all_blocks size"],
        num_rows: int | None = None,
        first_sequence: int = 0,
    ) -> Iterator[NoisyRows]:
        """Yield the rows in pieces of ``num_rows`` (default: all), on the device of the tokens.

        ``tokens`` are those of all blocks; a network counts sequences from ``first_sequence``.
        """
        size, piece = tokens.shape[1], num_rows or max(1, len(self.block))
        there = map_tensors(lambda _, tensor: send(tensor, tokens.device), self)
        places = send(self.places, tokens.device)
        ends = F.pad(self.needed.sum(dim=1).cumsum(dim=0), (1, 0)).tolist()
        for begin in range(0, len(self.block), piece):
            here = slice(begin, min(begin + piece, len(self.block)))
            block = there.block[here]
            rows = NoisyRows(
                sequence=block // self.num_blocks - first_sequence,
                start=block % self.num_blocks * size,
                tokens=tokens[block],
                revealed=there.revealed[here],
                needed=there.needed[here],
                exists=None if there.exists is None else there.exists[here],
            )
            own_places = places[ends[here.start] : ends[here.stop]] - begin * size
            yield rows.known(own_places, self._runs(here, first_sequence))

    def _runs(self, here: slice, first_sequence: int) -> tuple[BlockRun, ...]:
        size = self.needed.shape[1]
        blocks, counts = torch.unique_consecutive(self.block[here], return_counts=True)
        return tuple(
            BlockRun(block // self.num_blocks - first_sequence, block % self.num_blocks * size, n)
            for block, n in zip(blocks.tolist(), counts.tolist(), strict=True)
        )
