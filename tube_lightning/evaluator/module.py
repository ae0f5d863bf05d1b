"""The evaluation as a LightningModule: score a batch, put it on disk, count it."""

import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import lightning
import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torchmetrics import MetricCollection

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.cluster import INTERRUPTED
from tube_lightning.evaluator.batches import EvaluationBatches, TokenBatch
from tube_lightning.evaluator.block_scores import score_batch
from tube_lightning.evaluator.noticeboard import Notice, Noticeboard, State
from tube_lightning.evaluator.plan import Plan
from tube_lightning.metrics import (
    Measured,
    arm_quantities,
    corpus_metrics,
    exact_quantities,
    measured,
    packed_sums,
    sampled_quantities,
    surrogate_tubes,
)
from tube_lightning.networks import AutoregressiveModel, BlockModel
from tube_lightning.regimes import Regime
from tube_lightning.scores import LEFT_TO_RIGHT, BlockScores, ScoreFiles


class LikelihoodEvaluation(lightning.LightningModule):
    """A block model, its autoregressive companions, and the running bounds of every regime.

    ``arms`` are autoregressive models by name: "arm" is the baseline, "arm_ft" one fine-tuned on
    the block model's samples. The running values are for people who watch; results are made from
    the files, in their order. Between the first batch and the last no rank waits for another.
    """

    def __init__(
        self,
        model: BlockModel[Any],
        arms: Mapping[str, AutoregressiveModel],
        plan: Plan,
        files: ScoreFiles,
        settings: EstimatorSettings | None = None,
    ) -> None:
        super().__init__()
        self.model, self.plan, self.files = model, plan, files
        self._arm_names = tuple(arms)
        for name, arm in arms.items():
            setattr(self, name, arm)
        chosen = settings or EstimatorSettings()
        self.metrics = nn.ModuleDict({r.name: self._metrics(r, chosen) for r in plan.regimes})
        self.board = Noticeboard()
        self._num_batches = 0

    def _metrics(self, regime: Regime, settings: EstimatorSettings) -> MetricCollection:
        quantities = [
            *sampled_quantities(self.plan.num_orderings, settings),
            *(exact_quantities() if regime in self.plan.exact_regimes else ()),
            *surrogate_tubes([LEFT_TO_RIGHT, *self._arm_names]),
            *arm_quantities(self._arm_names),
        ]
        return corpus_metrics(quantities)

    def test_step(self, batch: TokenBatch, batch_idx: int) -> None:
        """Score one batch: it is on disk before it is counted, and counted before others know."""
        del batch_idx
        if not batch.sequences:
            return
        arms = {name: getattr(self, name) for name in self._arm_names}
        scores = score_batch(
            self.model,
            arms,
            batch.tokens,
            batch.roles,
            batch.sequences,
            self.plan,
            batch.token_bytes,
            batch.documents,
        )
        scores = replace(scores, texts=batch.texts)
        self.files.write(batch.number, scores)
        self.count(scores)
        self._num_batches += 1
        self._pin("scoring")

    def count(self, scores: BlockScores) -> None:
        """Add scored sequences to the running values."""
        for name, view in scores.views().items():
            cast("MetricCollection", self.metrics[name]).update(view, scores.num_tokens)

    def running_values(self) -> dict[str, dict[str, Measured]]:
        """Return each regime's quantities, with what the other ranks have told so far."""
        notices = [n for rank, n in enumerate(self.board.notices()) if rank != self.board.rank]
        told = [notice.sums for notice in notices if notice.sums.numel()]
        values, first = {}, 0
        for regime, metrics in self._regimes():
            here = slice(first, first := first + len(metrics))
            values[regime] = measured(metrics, [sums[:, here] for sums in told])
        return values

    def num_batches_of_all(self) -> int:
        """Count the batches that this run has finished, as far as ranks have told."""
        return sum(notice.num_batches for notice in self.board.notices())

    def _regimes(self) -> Iterator[tuple[str, MetricCollection]]:
        for regime, metrics in self.metrics.items():
            yield regime, cast("MetricCollection", metrics)

    def _pin(self, state: State) -> None:
        """Let the other ranks know where this one is."""
        sums: list[Float64[Tensor, "sums metrics"]] = [packed_sums(m) for _, m in self._regimes()]
        self.board.pin(Notice(self._num_batches, state, torch.cat(sums, dim=1)))

    def on_test_start(self) -> None:
        """Take over SIGTERM, and count what an earlier run left.

        Lightning's own handler starts a broadcast from inside the signal, which may meet another
        collective; this one leaves a note that all ranks read after their batch.
        """
        self._check_quantities()
        self.board, self._num_batches = Noticeboard.open(self.trainer.strategy), 0
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._request_stop)
        batches = cast("EvaluationBatches", self.trainer.test_dataloaders)
        if self.trainer.is_global_zero:
            for number in batches.finished:
                self.count(self.files.read(number).to(self.device))

    def _check_quantities(self) -> None:
        """Refuse processes that would add up different things: other estimators, or regimes."""
        ours = [f"{regime}/{name}" for regime, metrics in self._regimes() for name in metrics]
        first = self.trainer.strategy.broadcast(ours)
        if ours != first:
            others = sorted(set(ours).symmetric_difference(first))
            raise ValueError(
                f"rank {self.global_rank}: expected the quantities of rank 0, differs in "
                f"{', '.join(others)}: are estimators registered in all processes?"
            )

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self.board.ask_to_stop()

    def on_test_batch_end(self, outputs: object, batch: TokenBatch, *_: object) -> None:
        """Stop if any rank was asked to: the finished batches are on disk."""
        if batch.sequences and self.board.must_stop():
            self._leave_together("stopped")

    def on_test_epoch_end(self) -> None:
        """Wait for the other ranks, once."""
        self._leave_together("done")

    def wait_for_others(self, state: State = "done") -> Iterator[None]:
        """Let the others know that this rank is done, and yield at their news until all are."""
        self._pin(state)
        yield from self.board.wait_for_all_to_leave()

    def _leave_together(self, state: State) -> None:
        """Go when all ranks do, and end the run if one of them was stopped.

        Rank 0 tells the world. It would not live to do so if it saw another rank end in failure:
        Lightning then kills it.
        """
        for _ in self.wait_for_others(state):
            pass
        if any(notice.state == "stopped" for notice in self.board.notices()):
            raise SystemExit(INTERRUPTED if self.trainer.is_global_zero else 0)
