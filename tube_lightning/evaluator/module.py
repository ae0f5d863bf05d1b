"""The evaluation as a LightningModule: score a batch, put it on disk, count it."""

import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import lightning
from torch import nn
from torchmetrics import MetricCollection

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.cluster import INTERRUPTED
from tube_lightning.evaluator.batches import EvaluationBatches, TokenBatch
from tube_lightning.evaluator.block_scores import score_batch
from tube_lightning.evaluator.plan import Plan
from tube_lightning.metrics import (
    Measured,
    arm_quantities,
    corpus_metrics,
    exact_quantities,
    measured,
    sampled_quantities,
    surrogate_tubes,
)
from tube_lightning.networks import AutoregressiveModel, BlockModel
from tube_lightning.placement import exact_device
from tube_lightning.regimes import Regime
from tube_lightning.scores import LEFT_TO_RIGHT, BlockScores, ScoreFiles


class LikelihoodEvaluation(lightning.LightningModule):
    """A block model, its autoregressive companions, and the running bounds of every regime.

    ``arms`` are autoregressive models by name: "arm" is the baseline, "arm_ft" one fine-tuned on
    the block model's samples. Groups of ``processes_a_batch`` neighbouring ranks hold one copy of
    the model and score the same batches; the first of them keeps the scores. The running values are
    for people who watch; results are made from the files, in their order.
    """

    def __init__(
        self,
        model: BlockModel[Any],
        arms: Mapping[str, AutoregressiveModel],
        plan: Plan,
        files: ScoreFiles,
        settings: EstimatorSettings | None = None,
        processes_a_batch: int = 1,
    ) -> None:
        super().__init__()
        self.processes_a_batch = processes_a_batch
        self.model, self.plan, self.files = model, plan, files
        self._arm_names = tuple(arms)
        for name, arm in arms.items():
            setattr(self, name, arm)
        chosen = settings or EstimatorSettings()
        self.metrics = nn.ModuleDict({r.name: self._metrics(r, chosen) for r in plan.regimes})
        self.stop_requested = False
        # every process has read the same files: DDP need not send what they hold
        states = (*self.named_parameters(), *self.named_buffers())
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in states]

    def _metrics(self, regime: Regime, settings: EstimatorSettings) -> MetricCollection:
        quantities = [
            *sampled_quantities(self.plan.num_orderings, settings),
            *(exact_quantities() if regime in self.plan.exact_regimes else ()),
            *surrogate_tubes([LEFT_TO_RIGHT, *self._arm_names]),
            *arm_quantities(self._arm_names),
        ]
        return corpus_metrics(quantities)

    def test_step(self, batch: TokenBatch, batch_idx: int) -> None:
        """Score one batch: it is on disk before it is counted."""
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
        if self.global_rank % self.processes_a_batch:
            return  # another rank of the group has the same scores
        scores = replace(scores, texts=batch.texts)
        self.files.write(batch.number, scores)
        self.count(scores)

    def count(self, scores: BlockScores) -> None:
        """Add scored sequences to the running values."""
        for name, view in scores.views().items():
            cast("MetricCollection", self.metrics[name]).update(view, scores.num_tokens)

    def running_values(self) -> dict[str, dict[str, Measured]]:
        """Return each regime's quantities as they stand over all ranks: a collective."""
        return {
            regime: measured(cast("MetricCollection", metrics))
            for regime, metrics in self.metrics.items()
        }

    def on_test_start(self) -> None:
        """Take over SIGTERM, and count what an earlier run left.

        Lightning's own handler starts a broadcast from inside the signal, which may meet another
        collective; this one leaves a note that all ranks read after their batch.
        """
        self.stop_requested = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._request_stop)
        self._check_quantities()
        batches = cast("EvaluationBatches", self.trainer.test_dataloaders)
        if self.trainer.is_global_zero:
            for number in batches.finished:
                self.count(self.files.read(number).to(exact_device(self.device)))

    def _check_quantities(self) -> None:
        """Refuse processes that would wait for each other: with other estimators, or regimes."""
        ours = [
            f"{regime}/{name}"
            for regime, metrics in self.metrics.items()
            for name in cast("MetricCollection", metrics)
        ]
        first = self.trainer.strategy.broadcast(ours)
        if ours != first:
            others = sorted(set(ours).symmetric_difference(first))
            raise ValueError(
                f"rank {self.global_rank}: expected the quantities of rank 0, differs in "
                f"{', '.join(others)}: are estimators registered in all processes?"
            )

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True

    def on_test_batch_end(self, *_: object) -> None:
        """Stop together if any rank was asked to: the finished batches are on disk.

        Rank 0 tells the world. It would not live to do so if it saw another rank end in failure:
        Lightning then kills it.
        """
        if self.trainer.strategy.reduce_boolean_decision(self.stop_requested, all=False):
            raise SystemExit(INTERRUPTED if self.trainer.is_global_zero else 0)
