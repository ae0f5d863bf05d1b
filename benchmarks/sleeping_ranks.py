"""Real processes that sleep instead of scoring, and keep together in one of two ways."""

import multiprocessing
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import MetricCollection

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.evaluator.noticeboard import Notice, Noticeboard
from tube_lightning.metrics import (
    LikelihoodBound,
    corpus_metrics,
    exact_quantities,
    packed_sums,
    sampled_quantities,
)
from tube_lightning.regimes import list_regimes

Seconds = npt.NDArray[np.float64]
"""[..., ranks, turns]: how long each batch takes."""
STOP_ONLY = "lock-step, whether to stop"
STOP_AND_VALUES = "lock-step, and the running values"
NOTICEBOARD = "noticeboard, both"
_EMPTY_TURNS = 10


class Collectives(TorchDispatchMode):
    """Counts what waits for other ranks: the collectives of this process, by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch's signature)
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Note a collective, and let everything run."""
        if func.namespace == "c10d":
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def running_metrics() -> list[MetricCollection]:
    """Make the metrics of an evaluation with blocks of 4 and no ARM."""
    quantities = [*sampled_quantities(24, EstimatorSettings()), *exact_quantities()]
    return [corpus_metrics(quantities) for _ in list_regimes(4)]


def meet(strategy: DDPStrategy, metrics: list[MetricCollection]) -> None:
    """Do in lock-step what ranks do after a batch: agree whether to stop, and add up."""
    strategy.reduce_boolean_decision(False, all=False)
    for collection in metrics:
        for metric in collection.values():
            if isinstance(metric, LikelihoodBound):
                metric.measured()


def tell(board: Noticeboard, metrics: list[MetricCollection], num_batches: int) -> None:
    """Do with the noticeboard what ranks do after a batch."""
    sums = torch.cat([packed_sums(collection) for collection in metrics], dim=1)
    board.pin(Notice(num_batches, "scoring", sums))
    board.must_stop()


@dataclass(frozen=True)
class Timed:
    """What one rank of several saw of one way to keep together."""

    collectives: int
    after_a_batch: float
    """seconds of a turn without a batch"""
    whole: float
    """seconds of all turns with their naps"""


def measure_ranks(naps: Seconds) -> dict[str, Timed]:
    """Let a process for each row of naps sleep, both ways; return what rank 0 saw."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_measure_rank, args=(rank, address, folder, naps))
            for rank in range(len(naps))
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if failed := [rank for rank, process in enumerate(ranks) if process.exitcode]:
            raise RuntimeError(f"ranks: expected all to end well, got failures of {failed}")
        found: dict[str, Timed] = torch.load(f"{folder}/0.pt", weights_only=False)
        return found


def _measure_rank(rank: int, address: str, folder: str, naps: Seconds) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=len(naps))
    strategy = DDPStrategy(parallel_devices=[torch.device("cpu")] * len(naps))
    metrics, board = running_metrics(), Noticeboard.open(strategy)

    def leave() -> None:
        board.pin(Notice(len(naps[rank]), "done", torch.zeros(1, 0, dtype=torch.float64)))
        for _ in board.wait_for_all_to_leave():
            pass

    found = {
        STOP_ONLY: _measure_way(naps[rank], lambda _: meet(strategy, []), dist.barrier),
        STOP_AND_VALUES: _measure_way(naps[rank], lambda _: meet(strategy, metrics), dist.barrier),
        NOTICEBOARD: _measure_way(naps[rank], lambda turn: tell(board, metrics, turn), leave),
    }
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _measure_way(
    naps: Seconds, after_batch: Callable[[int], None], leave: Callable[[], object]
) -> Timed:
    after_batch(0)
    with Collectives() as counted:
        after_batch(0)
    dist.barrier()
    begin = time.perf_counter()
    for turn in range(_EMPTY_TURNS):
        after_batch(turn)
    empty = (time.perf_counter() - begin) / _EMPTY_TURNS
    dist.barrier()
    begin = time.perf_counter()
    for turn, seconds in enumerate(naps):
        time.sleep(seconds)
        after_batch(turn)
    leave()
    return Timed(len(counted.names), empty, time.perf_counter() - begin)
