"""A process that is killed in the middle: the others say so in a line, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from evaluation_runs import QUIET, ROOT, parts, run, values, without_bar, write_tokens
from safetensors.torch import load_file

from tube_lightning.cluster import LostProcessError, tells_lost_processes
from tube_lightning.evaluator import heartbeats
from tube_lightning.evaluator.heartbeats import Heartbeats
from tube_lightning.evaluator.noticeboard import Noticeboard

TINY = ["network.hidden_dim=16", "network.n_blocks=1", "network.n_heads=2", "batch_size=4"]
TRAINING = [*TINY, "trainer.limit_val_batches=0", "trainer.accelerator=cpu"]


@pytest.fixture
def two_ranks(monkeypatch):
    """Two ranks by connections of their own; the second can be gone."""
    if not dist.is_available():
        pytest.skip("torch has no stores here")
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(heartbeats, "LOST_SECONDS", 0.5)
    monkeypatch.setattr(heartbeats, "LOST_SECONDS_AT_THE_END", 0.2)
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, is_master=False)
    made = [Heartbeats(store, rank, 2, "test") for rank, store in enumerate((server, client))]
    made[0].register()
    for one in made:
        one.start()
    yield made
    for one in made:
        one.stop()


def wait_until_lost(ours, stopping=False):
    deadline = time.monotonic() + 20
    while (lost := ours.find_lost(stopping)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return lost


def test_ranks_that_live_are_not_missed(two_ranks):
    time.sleep(1)
    assert [one.find_lost(stopping) for one in two_ranks for stopping in (True, False)] == [
        None
    ] * 4


@pytest.mark.parametrize(("stopping", "seconds"), [(False, "0.5"), (True, "0.2")])
def test_a_rank_that_is_gone_is_named(two_ranks, stopping, seconds):
    two_ranks[1].stop()
    expected = f"rank 1 is gone (not heard of for {seconds} s)"
    assert wait_until_lost(two_ranks[0], stopping) == expected


def test_a_board_misses_ranks_between_batches(two_ranks):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    board = Noticeboard(store, 0, 2, name="test")
    board._heartbeats = two_ranks[0]
    assert not board.must_stop()
    two_ranks[1].stop()
    wait_until_lost(two_ranks[0])
    with pytest.raises(LostProcessError, match=r"rank 1 is gone \(not heard of for 0\.5 s\)"):
        board.must_stop()


def test_errors_of_connections_are_told_in_a_line_and_others_are_not():
    message = "[/a/gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:1234\nmore"
    with (
        pytest.raises(LostProcessError) as error,
        tells_lost_processes(lambda: "3 batches are on disk"),
    ):
        raise RuntimeError(message)
    assert str(error.value) == (
        "another process is gone (Connection closed by peer [127.0.0.1]:1234); "
        "3 batches are on disk; the same command continues"
    )
    with pytest.raises(RuntimeError, match="shapes"), tells_lost_processes(lambda: ""):
        raise RuntimeError("shapes do not fit")


def workers_of(launcher):
    """Return the ids of torchrun's two processes by rank."""
    found = {}
    for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        rank = [entry.removeprefix("RANK=") for entry in entries if entry.startswith("RANK=")]
        found |= {int(number): int(pid) for number in rank}
    return found


def torchrun(folder, program, options, ready, lost_rank):
    """Start two processes, kill one of them when ``ready()``; return the lines of the other."""
    errors = folder / "errors"
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    with errors.open("w") as output:
        launcher = subprocess.Popen(
            [*launch, str(ROOT / program), *options, "trainer.devices=2"],
            cwd=folder,
            env=os.environ | QUIET,
            stdout=output,
            stderr=output,
        )
    deadline = time.monotonic() + 300
    while not ready():
        assert launcher.poll() is None, errors.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(workers_of(launcher)[lost_rank], signal.SIGKILL)
    assert launcher.wait(timeout=120) != 0
    return [line for line in without_bar(errors.read_text()) if line.startswith("error: ")]


@pytest.mark.slow
@pytest.mark.parametrize("lost_rank", [0, 1])
def test_an_evaluation_of_torchrun(tmp_path, lost_rank):
    options = [*write_tokens(tmp_path, 120, length=24), "batch_size=2", "protocol.nfe=[2]"]
    directory = tmp_path / "run"

    def ready():
        return len(parts(directory)) > 2

    lost = torchrun(tmp_path, "evaluate.py", [*options, "output_dir=run"], ready, lost_rank)
    kept = parts(directory)
    assert lost == [
        f"error: rank {lost_rank} is gone (not heard of for 10 s); {len(kept)} of 60 batches are "
        "on disk; the same command continues"
    ]
    run(tmp_path, *options, "output_dir=run")
    run(tmp_path, *options, "output_dir=whole")
    assert kept.items() <= parts(directory).items()
    assert values(directory) == values(tmp_path / "whole")


@pytest.mark.slow
def test_a_training_of_torchrun(tmp_path):
    options = [*TRAINING, "trainer.max_steps=100", "checkpoint_every=5", "network.dropout=0.1"]
    state = tmp_path / "run" / "last.ckpt"
    lost = torchrun(tmp_path, "train.py", [*options, "output_dir=run"], state.exists, 1)
    assert len(lost) == 1
    assert lost[0].startswith("error: another process is gone (")
    assert lost[0].endswith("; the newest state is in run/last.ckpt; the same command continues")
    command = [sys.executable, str(ROOT / "train.py"), *options, "trainer.devices=2"]
    for name in ("run", "whole"):
        subprocess.run(
            [*command, f"output_dir={name}"],
            check=True,
            cwd=tmp_path,
            env=os.environ | QUIET,
            capture_output=True,
        )
    one, other = (load_file(tmp_path / n / "model/model.safetensors") for n in ("run", "whole"))
    assert all(one[name].equal(other[name]) for name in other)
