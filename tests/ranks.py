"""Real processes that reduce over gloo, for tests. They are forks: nothing is imported again."""

import datetime

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SECONDS = 60


def on_ranks(world_size, function, folder):
    """Call ``function(rank)`` on every rank of a process group, and return what each returns."""
    if not dist.is_gloo_available():
        pytest.skip("several processes need gloo")
    folder.mkdir()
    context = mp.get_context("fork")
    ranks = [
        context.Process(target=_one_rank, args=(rank, world_size, function, folder))
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(2 * SECONDS)
        process.kill()
    assert [process.exitcode for process in ranks] == [0] * world_size, "a rank failed or hung"
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


def _one_rank(rank, world_size, function, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    torch.save(function(rank), folder / f"{rank}.pt")
    dist.destroy_process_group()
