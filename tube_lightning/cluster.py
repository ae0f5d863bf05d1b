"""On a cluster: who starts the processes, and what happens when the scheduler wants them back."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

INTERRUPTED = 128 + signal.SIGTERM  # what a shell and srun report for a program that SIGTERM ended
_INTERRUPTED_BY_HAND = 128 + signal.SIGINT
RUN_OF_JOB = "TUBE_LIGHTNING_RUN_OF_JOB"
"""The variable that names a file in which slurm/job.sh finds the directory of its run."""
STARTED_FILE = ".started"


class LostProcessError(ConnectionError):
    """Another process of the run is gone."""


def cluster_plugins() -> list[ClusterEnvironment]:
    """Keep Lightning from queueing SLURM jobs again by itself; elsewhere change nothing.

    Its way saves ``hpc_ckpt_*`` files that a later run in the same folder loads without a word. A
    job called "interactive" or "bash" starts its own processes, as on any machine.
    """
    if TorchElasticEnvironment.detect() or not SLURMEnvironment.detect():
        return []
    return [SLURMEnvironment(auto_requeue=False)]


def check_processes(trainer: L.Trainer) -> None:
    """Raise if the processes that run, or would, are not those that were asked for.

    Under SLURM that is when it has another number of tasks: Lightning would use one device without
    a word, or every task would do all of the work. With a Hydra sweep each process would start all
    of it.
    """
    num_processes = trainer.num_devices * trainer.num_nodes
    for environment in cluster_plugins():
        if environment.world_size() != num_processes:
            raise ValueError(
                f"trainer.devices: expected one process for each of the {environment.world_size()} "
                f"tasks of this SLURM job, got {trainer.num_devices} devices on "
                f"{trainer.num_nodes} nodes; start it by srun "
                f"--ntasks-per-node={trainer.num_devices}, as slurm/*.sbatch do"
            )
    sweeping = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    if sweeping and num_processes > 1:
        raise ValueError(
            f"--multirun: expected a single process, got {num_processes}, each of which would start"
            " the sweep again; set trainer.devices=1, or run the settings one after the other"
        )


@contextmanager
def disconnecting() -> Iterator[None]:
    """Close the connections to other processes at the end, also of an interruption.

    Lightning leaves gloo's to the end of the interpreter. Threads of theirs that let go of a tensor
    when Python is gone abort the process now and then: SLURM takes that for a failure, and kills
    the other tasks.
    """
    try:
        yield
    finally:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def tells_lost_processes(what_is_safe: Callable[[], str]) -> Iterator[None]:
    """Say in a line that another process is gone, what is safe, and how to go on.

    A process that ends closes its connections, and whoever talks to it knows at once. That of a
    machine that vanishes is missed after the time that collectives wait: torch's half an hour.
    """
    try:
        yield
    except (LostProcessError, RuntimeError) as error:
        if not (isinstance(error, LostProcessError) or _is_about_a_connection(error)):
            raise
        if told := os.environ.get(RUN_OF_JOB):
            Path(f"{told}.lost").touch()  # srun would wait for a node that is gone
        why = str(error) if isinstance(error, LostProcessError) else _told_by_torch(error)
        raise LostProcessError(f"{why}; {what_is_safe()}; the same command continues") from error


def _is_about_a_connection(error: RuntimeError) -> bool:
    return "gloo" in str(error) or (dist.is_available() and isinstance(error, dist.DistError))


def _told_by_torch(error: RuntimeError) -> str:
    """Return the first sentence of an error, without the places in torch that it names."""
    words = str(error).strip().split("\n")[0].rpartition("] ")[2].split(". ")[0]
    return f"another process is gone ({words or type(error).__name__})"


def note_start(directory: Path) -> None:
    """Let slurm/job.sh know where this run lives and when it began. For rank 0.

    Batches and states that are newer when it fails are progress: then the job is queued again.
    """
    if told := os.environ.get(RUN_OF_JOB):
        (directory / STARTED_FILE).touch()
        Path(told).write_text(f"{directory.absolute()}\n", encoding="utf-8")


class StopWhenAsked(Checkpoint):
    """End training between two steps after SIGTERM or Ctrl-C, with a state to resume from.

    The exit code is 143 or 130. A second Ctrl-C ends it at once, with the state that there is.

    Like every ``Checkpoint`` it runs after the callbacks whose state it saves.

    Lightning's own handler broadcasts from wherever the signal finds a process, so that processes
    can wait for each other for ever; and it exits with 0, as if training were over.
    """

    def __init__(self, checkpoint: str | Path) -> None:
        self.checkpoint = Path(checkpoint)
        self._received = 0
        self._step = 0

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the signals over from Lightning, which gives them back when it is done."""
        self._listen()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the signals over, if there was no validation to begin with."""
        self._listen()
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Save and stop if any process got the signal, unless gradients are being gathered."""
        stepped, self._step = trainer.global_step > self._step, trainer.global_step
        asked = self._received > 0
        if stepped and trainer.strategy.reduce_boolean_decision(asked, all=False):
            trainer.save_checkpoint(self.checkpoint)
            # Lightning kills rank 0 if it sees another one end in failure
            by_hand = self._received == signal.SIGINT
            code = _INTERRUPTED_BY_HAND if by_hand else INTERRUPTED
            raise SIGTERMException(code if trainer.is_global_zero else 0)

    def _listen(self) -> None:
        signal.signal(signal.SIGTERM, self._note)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored
            signal.signal(signal.SIGINT, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._received = signum
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
