"""What people see while an evaluation runs: a bar with the bracket so far, and curves."""

from itertools import chain
from typing import Any, cast

import lightning
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from tube_lightning.bounds import headline_bound
from tube_lightning.evaluator.batches import EvaluationBatches
from tube_lightning.evaluator.module import LikelihoodEvaluation
from tube_lightning.loggers import plot_against
from tube_lightning.metrics import EXACT, Measured
from tube_lightning.regimes import headline
from tube_lightning.scores import ARM, ARM_FT
from tube_lightning.terminal import bar_console

RunningValues = dict[str, dict[str, Measured]]
TOKENS_SCORED = "tokens_scored"
_SHORTEST_BAR = 4
"""What rich leaves of a bar where there is little room."""


class LiveValues(lightning.Callback):
    """Log the perplexity of every bound against the tokens scored, and show the bracket.

    Rank 0 does so every ``log_every_n_steps`` batches of its own, with what the other ranks have
    told by then; no rank waits for it. In the end it shows what the others still bring.
    """

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._taken = self._num_shown = 0

    def on_test_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Open the bar, where batches of earlier runs are done already."""
        if not trainer.is_global_zero:
            return
        plot_against(trainer.loggers, TOKENS_SCORED)
        batches = cast("EvaluationBatches", trainer.test_dataloaders)
        self._num_shown, finished = 0, len(batches.finished)
        total = finished + len(batches.remaining)
        self._bar, self._taken = _bar(total)
        self._bar.add_task("", total=total, completed=finished)
        self._bar.start()

    def on_test_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,  # noqa: ANN401 (Lightning's signature)
        batch: Any,  # noqa: ANN401
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Show how far all ranks are, and at some turns the values."""
        if not trainer.is_global_zero:
            return
        module, turn = cast("LikelihoodEvaluation", pl_module), batch_idx + 1
        every: int = cast("Any", trainer).log_every_n_steps  # set where mypy does not see it
        num_turns = len(cast("EvaluationBatches", trainer.test_dataloaders))
        if turn == num_turns or (every > 0 and turn % every == 0):
            self._show(trainer, module.running_values())
        self._advance(trainer, module)

    def on_test_epoch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Show what comes in from ranks that are not done yet, and in the end all of it."""
        if not trainer.is_global_zero:
            return
        module = cast("LikelihoodEvaluation", pl_module)
        for _ in chain(module.wait_for_others(), [None]):
            self._show(trainer, module.running_values())
            self._advance(trainer, module)

    def _advance(self, trainer: lightning.Trainer, module: LikelihoodEvaluation) -> None:
        if self._bar is not None:
            batches = cast("EvaluationBatches", trainer.test_dataloaders)
            done = len(batches.finished) + module.num_batches_of_all()
            self._bar.update(self._bar.task_ids[0], completed=done)

    def _show(self, trainer: lightning.Trainer, values: RunningValues) -> None:
        tokens = next(iter(values[headline(values)].values())).num_tokens
        if tokens == self._num_shown:
            return
        self._num_shown = tokens
        if self._bar is not None:
            room = self._bar.console.width - self._taken
            self._bar.update(self._bar.task_ids[0], description=live_bracket(values, room))
        curves = {
            curve_name(regime, name): value.ppl
            for regime, quantities in values.items()
            for name, value in quantities.items()
        }
        for logger in trainer.loggers:
            logger.log_metrics({**curves, TOKENS_SCORED: float(tokens)}, step=tokens)

    def on_test_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        exception: BaseException,
    ) -> None:
        """Close the bar, so that the error stands on a line of its own."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def curve_name(regime: str, name: str) -> str:
    """Name the perplexity of a quantity, as curves and tables of loggers have it.

    >>> curve_name("nfe_2", "tube"), curve_name("nfe_2", "arm")
    ('nfe_2/tube_ppl', 'arm_ppl')
    """
    return f"{name}_ppl" if name in (ARM, ARM_FT) else f"{regime}/{name}_ppl"


def _bar(total: int) -> tuple[Progress, int]:
    """Make a bar that shortens itself; return how wide it is before the bracket, at the least."""
    title, count, clock = len("scoring"), 2 * len(str(total)) + 1, len("0:00:00")
    bar = Progress(
        TextColumn("scoring", table_column=Column(min_width=title)),
        BarColumn(bar_width=10),
        MofNCompleteColumn(table_column=Column(min_width=count)),
        TimeRemainingColumn(table_column=Column(min_width=clock)),
        TextColumn("{task.description}"),
        console=bar_console(),
    )
    return bar, title + 1 + _SHORTEST_BAR + 1 + count + 1 + clock + 1


def live_bracket(values: RunningValues, room: int) -> str:
    """Write the any-order bracket so far, and the ARM's perplexity: what there is room for."""
    now = {name: _number(value.ppl) for name, value in values[headline(values)].items()}
    low, high = (headline_bound(side, "fresh").name for side in ("upper", "lower"))
    text = f"PPL <= {now[high]}"
    if low in now:
        text = f"{now[low]} <= {text}"
    if EXACT in now:
        whole = f"{text}, exactly {now[EXACT]}"
        text = whole if len(whole) <= room else f"PPL = {now[EXACT]}"
    if ARM in now and len(whole := f"{text} (ARM {now[ARM]})") <= room:
        text = whole
    return text


def _number(ppl: float) -> str:
    """Write five significant digits.

    >>> _number(273.7954), _number(49273.2)
    ('273.80', '49273')
    """
    return f"{ppl:#.5g}".rstrip(".")
