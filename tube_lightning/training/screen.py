"""What people see of a training: a bar with the loss in bits, and where the model is."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from tube_lightning.data import DEMO
from tube_lightning.terminal import bar_console

TRAIN_LOSS, VALIDATION_LOSS = "train/nats_per_token", "val/nats_per_token"


@rank_zero_only
def tell(text: str) -> None:
    """Print a line, on one process, beside what programs read."""
    Console(stderr=True).print(text, soft_wrap=True, markup=False, highlight=False)


class TrainingBar(L.Callback):
    """Show the step and the losses. Where there is no screen: at every validation, and the end."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._told = -1

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the bar, at the step where an earlier run stopped."""
        if not trainer.is_global_zero:
            return
        console = bar_console()
        self._bar = Progress(
            TextColumn("training", table_column=Column(min_width=len("training"))),
            BarColumn(bar_width=10),
            TimeRemainingColumn(table_column=Column(min_width=len("0:00:00"))),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )
        total = trainer.max_steps if trainer.max_steps > 0 else None
        self._bar.add_task(_progress(trainer), total=total, completed=trainer.global_step)
        self._bar.start()

    def on_train_batch_end(self, trainer: L.Trainer, *_: object) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=trainer.global_step,
                description=_progress(trainer),
            )

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write a line where there is no screen."""
        if not trainer.sanity_checking:
            self._write(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar, and leave its last line."""
        self._write(trainer)
        self._close()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that the error stands on a line of its own; say where it stopped."""
        if isinstance(exception, SIGTERMException) and self._bar is not None:
            told = (
                f"Stopped at step {trainer.global_step:,}; the same command continues from there."
            )
        elif isinstance(exception, KeyboardInterrupt):
            told = "Stopped; the same command continues from the newest state, if there is one."
        else:
            told = None
        self._close()
        if told is not None:
            tell(told)

    def _write(self, trainer: L.Trainer) -> None:
        if self._bar is not None and self._bar.disable and self._told != trainer.global_step:
            self._told = trainer.global_step
            tell(_progress(trainer))

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _progress(trainer: L.Trainer) -> str:
    """Write the step, and the losses that are known, in bits per token."""
    of = f" of {trainer.max_steps:,}" if trainer.max_steps > 0 else ""
    told = [f"step {trainer.global_step:,}{of}"]
    for name, title in ((TRAIN_LOSS, "loss"), (VALIDATION_LOSS, "validation")):
        if (nats := trainer.callback_metrics.get(name)) is not None:
            told.append(f"{title} {float(nats) / math.log(2):.4f}")
    return ", ".join(told) + " bits per token" * (len(told) > 1)


def tell_end(folder: Path, config: Mapping[str, Any], *, is_arm: bool) -> None:
    """Say where the model is, and the command that evaluates it: on the text it was validated on.

    Where that is a text of one's own, else on the embedded one.
    """
    key, whose = ("arm.checkpoint", "arm") if is_arm else ("model.checkpoint", "data")
    words = [f"{key}={folder}"]
    data = config.get("data", {})
    if (paths := data.get("validation", {}).get("paths")) is not None:
        path = paths if isinstance(paths, str) else f"[{','.join(map(str, paths))}]"
        words += ["data=text", f"data.path={path}"]
        if (tokenizer := data.get("tokenizer")) not in (None, DEMO):
            words.append(f"{whose}.tokenizer={tokenizer}")
    command = shlex.join(["python", "evaluate.py", *words])
    tell(f"The model is in {folder}; evaluate it: {command}")
