"""The processes of an evaluation: who waits for whom, and how they end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import lightning
from rich.console import Console

from tube_lightning.cluster import INTERRUPTED
from tube_lightning.evaluator import EvaluationData


def decides_alone(trainer: lightning.Trainer) -> bool:
    """Tell whether no other process waits for this one: none, or none yet.

    Processes may see the directory in different states. Those that are there all go on, and rank 0
    tells them what remains.
    """
    if trainer.world_size == 1:
        return True
    environment = trainer._accelerator_connector.cluster_environment
    return trainer.is_global_zero and not environment.creates_processes_externally


def connect_early(trainer: lightning.Trainer) -> None:
    """Connect the processes before models are loaded: they will share one copy of a network.

    Lightning starts processes of its own only when models are there already.
    """
    environment = trainer._accelerator_connector.cluster_environment
    if trainer.world_size == 1 or not environment.creates_processes_externally:
        raise ValueError(
            "tensor_parallel: expected processes that are started together: torchrun "
            f"--nproc-per-node={trainer.num_devices} evaluate.py ..., or srun"
        )
    trainer.strategy.setup_environment()


@contextmanager
def ends_together(trainer: lightning.Trainer) -> Iterator[None]:
    """Until the first batch, let SIGTERM end this process and those that it started."""

    def stop(number: int, frame: FrameType | None) -> None:
        kill = getattr(trainer.strategy.launcher, "kill", None)
        if kill is not None:
            kill(signal.SIGTERM)
        raise SystemExit(INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def says_how_to_continue(data: EvaluationData, trainer: lightning.Trainer) -> Iterator[None]:
    """Say what is kept, when a run is stopped by SIGTERM or from the keyboard."""
    try:
        yield
    except SystemExit:
        if trainer.is_global_zero:
            done = data.num_batches - len(data.remaining())
            Console(stderr=True).print(
                f"Stopped: {done} of {data.num_batches} batches are on disk; the same command "
                "continues.",
                soft_wrap=True,
            )
        raise
