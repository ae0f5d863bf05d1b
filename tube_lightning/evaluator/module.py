"""The evaluation as a LightningModule: score a batch, put it on disk, count it."""

import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
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
from tube_lightning.evaluator.block_scores import num_entries, score_batch
from tube_lightning.evaluator.budget import agree_on_budget
from tube_lightning.evaluator.noticeboard import Notice, Noticeboard, State
from tube_lightning.evaluator.plan import Plan
from tube_lightning.memory import TokenBudget, default_token_budget
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
from tube_lightning.placement import exact_device
from tube_lightning.regimes import Regime
from tube_lightning.rundir import record_budget
from tube_lightning.scores import LEFT_TO_RIGHT, BlockScores, ScoreFiles


class LikelihoodEvaluation(lightning.LightningModule):
    """A block model, its autoregressive companions, and the running bounds of every regime.

    ``arms`` are autoregressive models by name: "arm" is the baseline, "arm_ft" one fine-tuned on
    the block model's samples. The running values are for people who watch; results are made from
    the files, in their order. Between the first batch and the last no rank waits for another,
    unless groups of ``processes_a_batch`` neighbouring ranks hold one copy of the model: these
    score the same batches, and the first of them keeps the scores.

    ``token_budget`` is how many tokens go through a network at once (default: as many as fit), and
    ``directory`` where the run's record is, which tells it.
    """

    def __init__(
        self,
        model: BlockModel[Any],
        arms: Mapping[str, AutoregressiveModel],
        plan: Plan,
        files: ScoreFiles,
        settings: EstimatorSettings | None = None,
        *,
        token_budget: int | None = None,
        directory: Path | None = None,
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
        self._asked_budget, self.directory = token_budget, directory
        self.budget: TokenBudget | None = None
        self.board = Noticeboard()
        self._num_batches = 0
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
        """Score one batch: it is on disk before it is counted, and counted before others know."""
        del batch_idx
        if not batch.sequences:
            return
        before = None if self.budget is None else self.budget.tokens
        scores = score_batch(
            self.model,
            self._arms(),
            batch.tokens,
            batch.roles,
            batch.sequences,
            self.plan,
            batch.token_bytes,
            batch.documents,
            self.budget,
        )
        if self.budget is not None and self.budget.tokens != before and self.directory is not None:
            record_budget(self.directory, self.device.type, self.budget.tokens, shrunk=True)
        if self.global_rank % self.processes_a_batch == 0:  # others of the group have the same
            scores = replace(scores, texts=batch.texts)
            self.files.write(batch.number, scores)
            self.count(scores)
            self._num_batches += 1
        self._pin("scoring")

    def _arms(self) -> dict[str, AutoregressiveModel]:
        return {name: getattr(self, name) for name in self._arm_names}

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
        self.board, self._num_batches = Noticeboard(), 0
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._request_stop)
        self._check_quantities()
        alone, self.board = self.board, Noticeboard.open(self.trainer.strategy)
        if alone.must_stop():  # asked to meanwhile
            self.board.ask_to_stop()
        batches = cast("EvaluationBatches", self.trainer.test_dataloaders)
        self.budget = self._agree_on_budget(batches)
        if self.trainer.is_global_zero:
            for number in batches.finished:
                self.count(self.files.read(number).to(exact_device(self.device)))

    def _agree_on_budget(self, batches: EvaluationBatches) -> TokenBudget:
        entries = num_entries(self.plan, batches.batch_size, batches.text.length)
        others = self._arms().values()
        fitting = default_token_budget(self.device, self.model, others, entries)
        strategy = self.trainer.strategy
        budget = agree_on_budget(strategy, fitting, self._asked_budget, self.directory)
        budget.may_halve = self.processes_a_batch == 1
        return budget

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
        stop = self.board.must_stop()
        if self.processes_a_batch > 1:  # a group that hears of it apart would wait for each other
            stop = self.trainer.strategy.reduce_boolean_decision(stop, all=False)
        if batch.sequences and stop:
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
