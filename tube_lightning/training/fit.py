"""Train to the end, from wherever an earlier run was cut short."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint

from tube_lightning.checkpoints import LAST_STATE_FILE, MODEL_FOLDER, save_checkpoint
from tube_lightning.cluster import (
    StopWhenAsked,
    disconnecting,
    note_start,
    tells_lost_processes,
)
from tube_lightning.rundir import (
    KEPT_MODELS_FOLDER,
    claim_directory,
    read_claim,
    release_directory,
)
from tube_lightning.training.kept_models import KeepModels
from tube_lightning.training.module import DenoiserTraining
from tube_lightning.training.screen import TrainingBar, tell, tell_end
from tube_lightning.training.stages import MAY_CHANGE, tell_extension
from tube_lightning.whole_files import remove_unfinished


def training_callbacks(
    output_dir: str, every_n_steps: int, keep_every: int | None = None
) -> list[Callback]:
    """Show progress; keep the newest state, also when stopped, models on the way, and curves."""
    newest = ModelCheckpoint(
        dirpath=output_dir,
        save_top_k=0,
        save_last=True,
        every_n_train_steps=every_n_steps,
        save_on_train_epoch_end=False,
        enable_version_counter=False,  # the newest is always last.ckpt, whoever wrote it before
    )
    return [
        TrainingBar(),
        KeepModels(output_dir, keep_every),  # before the state that has its counts
        newest,
        LearningRateMonitor("step"),
        StopWhenAsked(Path(output_dir) / LAST_STATE_FILE),
    ]


def train_to_end(
    module: DenoiserTraining,
    data: L.LightningDataModule,
    trainer: L.Trainer,
    output_dir: str,
    config: Mapping[str, Any],
) -> Path:
    """Fit, resuming a run of the same configuration; save its average weights for everyone.

    Where it runs, how long and what it writes on the way may be others than before. Returns the
    folder with the trained model in the published layout.
    """
    before = read_claim(output_dir)
    directory = claim_directory(output_dir, config, may_change=MAY_CHANGE)
    if before is not None and (told := tell_extension(before, config, module.schedule)):
        tell(told)
    for logger in trainer.loggers:
        logger.log_hyperparams(dict(config))
    last = directory / LAST_STATE_FILE
    if trainer.is_global_zero:
        note_start(directory)
        remove_unfinished(last)
    with (
        disconnecting(),
        tells_lost_processes(lambda: _what_is_kept(last)),
        _released_unless_begun(trainer, directory),
    ):
        trainer.fit(module, data, ckpt_path=last if last.exists() else None, weights_only=True)
    folder = directory / MODEL_FOLDER
    if trainer.is_global_zero and not trainer.interrupted:
        save_checkpoint(folder, module.network)
        tell_end(folder, config, is_arm=module.network.config.causal)
    return folder


def _what_is_kept(last: Path) -> str:
    return f"the newest state is in {last}" if last.exists() else "no state was saved yet"


@contextmanager
def _released_unless_begun(trainer: L.Trainer, directory: Path) -> Iterator[None]:
    """Leave the directory to whoever comes next if a run fails before it has left anything."""
    try:
        yield
    except BaseException:
        kept = (directory / LAST_STATE_FILE, directory / KEPT_MODELS_FOLDER)
        if trainer.is_global_zero and not any(path.exists() for path in kept):
            release_directory(directory)
        raise
