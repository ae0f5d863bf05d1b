"""The finished parts of a run, in the order of their batches."""

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from tube_lightning.checks import check_whole_number
from tube_lightning.rundir import SCORES_FOLDER
from tube_lightning.scores import BlockScores, ScoreFiles

_MAX_BLOCKS = 1 << 12
"""Blocks at a time. Sums of so few numbers do not depend on the number of threads."""


class RunParts:
    """All parts of a run, with the first ``num_orderings`` orderings of each block (None = all).

    ``patience`` is how many seconds parts may take to appear: on a network file system those that
    other machines wrote do.
    """

    def __init__(
        self,
        directory: Path,
        num_batches: int,
        num_orderings: int | None = None,
        patience: float = 0.0,
    ) -> None:
        if num_orderings is not None:
            check_whole_number("num_orderings", num_orderings, least=1)
        self.files = ScoreFiles(directory / SCORES_FOLDER)
        self.num_batches, self.num_orderings = num_batches, num_orderings
        self._wait_for_all(patience)

    def _wait_for_all(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        wanted = set(range(self.num_batches))
        while missing := wanted.difference(self.files.finished()):
            if time.monotonic() > deadline:
                raise ValueError(
                    f"{self.files.folder}: expected {self.num_batches} batches, got "
                    f"{self.num_batches - len(missing)} ({len(missing)} missing): "
                    "run the same evaluate command again, it continues"
                )
            time.sleep(0.2)

    def sequences(self) -> Int64[Tensor, " sequences"]:
        """List the sequences of all parts, sorted, without reading their scores."""
        batches = [self.files.read_sequences(batch) for batch in range(self.num_batches)]
        return torch.cat(batches).sort().values

    def __iter__(self) -> Iterator[BlockScores]:
        """Read batch after batch, in slices of whole sequences."""
        for batch in range(self.num_batches):
            scores = self.files.read(batch)
            if self.num_orderings is not None:
                scores = scores.first_orderings(self.num_orderings)
            rows = max(1, _MAX_BLOCKS // scores.num_tokens.shape[1])
            for first in range(0, len(scores.sequences), rows):
                yield scores.rows(slice(first, first + rows))
