"""The finished parts of a run, in the order of their batches."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from tube_lightning.checks import check_whole_number
from tube_lightning.report.schema import RunRecord
from tube_lightning.score_files import BlockScores, ScoreFiles

RUN_FILE, SCORES_FOLDER = "run.json", "scores"
_MAX_BLOCKS = 1 << 12
"""Blocks at a time. Sums of so few numbers do not depend on the number of threads."""


def read_run(directory: Path) -> RunRecord:
    """Read what the run tells about itself."""
    path = directory / RUN_FILE
    if not path.exists():
        raise ValueError(f"{directory}: expected the directory of an evaluation, got no {RUN_FILE}")
    record = json.loads(path.read_text())
    missing = sorted(RunRecord.__required_keys__ - record.keys())
    if missing:
        raise ValueError(f"{path}: expected the keys of an evaluation, got none of {missing}")
    return cast("RunRecord", record)


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

    def __iter__(self) -> Iterator[BlockScores]:
        """Read batch after batch, in slices of whole sequences."""
        next_sequence = 0
        for batch in range(self.num_batches):
            scores = self._first_orderings(self.files.read(batch))
            ids = scores.sequences.tolist()
            if ids != list(range(next_sequence, next_sequence + len(ids))):
                raise ValueError(
                    f"{self.files.folder}: expected sequence {next_sequence} and those after it in "
                    f"batch {batch}, got {ids[:3]}...: is it the file of another batch?"
                )
            next_sequence += len(ids)
            rows = max(1, _MAX_BLOCKS // scores.num_tokens.shape[1])
            for first in range(0, len(scores.sequences), rows):
                seconds = scores.seconds if first == 0 else 0.0
                yield _slice(scores, slice(first, first + rows), seconds)

    def _first_orderings(self, scores: BlockScores) -> BlockScores:
        if self.num_orderings is None:
            return scores
        regimes = {}
        for name, regime in scores.regimes.items():
            if self.num_orderings > (there := regime.scores.shape[-1]):
                raise ValueError(
                    f"num_orderings: expected at most the {there} that were scored, "
                    f"got {self.num_orderings}"
                )
            regimes[name] = replace(regime, scores=regime.scores[..., : self.num_orderings])
        return replace(scores, regimes=regimes)


def _slice(scores: BlockScores, rows: slice, seconds: float) -> BlockScores:
    """Take some sequences of a batch."""
    regimes = {}
    for name, regime in scores.regimes.items():
        parts = {
            field: value[rows]
            for field in ("scores", "exact", "exact_elbo", "continuous_elbo")
            if (value := getattr(regime, field)) is not None
        }
        log_psi = {key: value[rows] for key, value in (regime.log_psi or {}).items()}
        regimes[name] = replace(regime, **parts, log_psi=log_psi)
    return BlockScores(scores.sequences[rows], scores.num_tokens[rows], regimes, seconds)
