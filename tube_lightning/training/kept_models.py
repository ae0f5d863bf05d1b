"""Models kept along the way: the average weights every so many steps, with what they cost."""

import json
import time
from pathlib import Path
from typing import Any, cast

import lightning as L
from jaxtyping import Int64
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

from tube_lightning.checkpoints import save_checkpoint
from tube_lightning.networks import DiT
from tube_lightning.rundir import KEPT_MODELS_FOLDER
from tube_lightning.training.averaging import AverageWeights
from tube_lightning.training.module import DenoiserTraining
from tube_lightning.whole_files import write_text


class KeepModels(Checkpoint):
    """Save ``models/step_N`` every so many steps and at the last, each ready for ``init_from``.

    ``models/step_N.json`` says what it cost so far: sequences, and minutes of CPU and of the clock,
    with those of earlier runs that this one resumed; validation is not counted. Without a number of
    steps nothing is kept. (A ``Checkpoint`` comes after the callback that averages the weights.)
    """

    def __init__(self, output_dir: str, every_n_steps: int | None) -> None:
        if every_n_steps is not None and every_n_steps < 1:
            raise ValueError(f"keep_every: expected at least 1 step, got {every_n_steps}")
        self.folder = Path(output_dir) / KEPT_MODELS_FOLDER
        self.every_n_steps = every_n_steps
        self.cpu_seconds = self.seconds = 0.0
        self.num_sequences = 0
        self._started = 0.0, 0.0
        self._last_step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return what was spent, for a run that resumes this one."""
        return {
            "cpu_seconds": self.cpu_seconds,
            "seconds": self.seconds,
            "num_sequences": self.num_sequences,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        for name, value in state_dict.items():
            setattr(self, name, value)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Remember where this run begins."""
        self._last_step = trainer.global_step

    def on_train_batch_start(self, *_: object) -> None:
        """Start the clocks."""
        self._started = time.process_time(), time.monotonic()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: object,
        batch: Int64[Tensor, "batch length"],
        batch_idx: int,
    ) -> None:
        """Stop the clocks; keep a model where one is due."""
        cpu, clock = self._started
        self.cpu_seconds += time.process_time() - cpu
        self.seconds += time.monotonic() - clock
        self.num_sequences += len(batch) * trainer.world_size
        step, stepped = trainer.global_step, trainer.global_step != self._last_step
        self._last_step = step
        every = self.every_n_steps
        if every and stepped and (step % every == 0 or step == trainer.max_steps):
            self._keep(trainer, step)

    def _keep(self, trainer: L.Trainer, step: int) -> None:
        if not trainer.is_global_zero:
            return
        save_checkpoint(self.folder / f"step_{step}", _average_network(trainer))
        cost = {
            "step": step,
            "sequences": self.num_sequences,
            "cpu_minutes": self.cpu_seconds / 60,
            "minutes": self.seconds / 60,
        }
        write_text(self.folder / f"step_{step}.json", json.dumps(cost) + "\n")


def _average_network(trainer: L.Trainer) -> DiT:
    callbacks: list[L.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    (averaging,) = (callback for callback in callbacks if isinstance(callback, AverageWeights))
    return cast("DenoiserTraining", averaging.average).network
