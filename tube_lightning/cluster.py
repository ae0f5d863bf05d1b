"""On a cluster: who starts the processes, and what happens when the scheduler wants them back."""

import signal
from collections.abc import Iterator
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
