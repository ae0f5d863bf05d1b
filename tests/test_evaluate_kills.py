"""evaluate.py cut short: SIGKILL at any moment, SIGTERM, a dying process, a full disk."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from evaluation_runs import (
    QUIET,
    ROOT,
    error_line,
    parts,
    run,
    start,
    values,
    without_bar,
    write_tokens,
)

pytestmark = pytest.mark.slow
NUM_BATCHES = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def options(folder):
    return [*write_tokens(folder, 2 * NUM_BATCHES, length=24), "batch_size=2", "protocol.nfe=[2]"]


@pytest.fixture(scope="module")
def whole(folder, options):
    """Evaluate without interruption."""
    run(folder, *options, "output_dir=whole")
    return values(folder / "whole")


def wait_for_parts(process, directory, number):
    """Wait until so many batches are on disk."""
    deadline = time.monotonic() + 300
    while len(parts(directory)) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_for_child(process):
    """Wait until a process has started another, and return that one's id."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 120
    while not (found := children.read_text().split()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(found[0])


def wait_for_end(child):
    """Wait until a process is gone."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def kill_group(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("devices", [1, 2])
def test_killed_at_random_moments_and_continued(folder, options, whole, devices):
    chance = random.Random(devices)
    name = f"killed_{devices}"
    directory, command = folder / name, [f"output_dir={name}", f"trainer.devices={devices}"]
    kept = {}
    for _ in range(3):
        goal = len(kept) + chance.randint(1, NUM_BATCHES // 8)
        process = start(folder, *options, *command)
        wait_for_parts(process, directory, goal)
        time.sleep(chance.uniform(0, 0.1))
        kill_group(process)
        now = parts(directory)
        assert goal <= len(now) < NUM_BATCHES
        assert kept.items() <= now.items()  # finished batches were not written again
        assert not (directory / "results.json").exists()
        kept = now
    run(folder, *options, *command)
    final = parts(directory)
    assert kept.items() <= final.items()
    assert len(final) == NUM_BATCHES
    assert values(directory) == whole
    assert not [path for path in directory.rglob("*") if path.name.endswith(".unfinished")]


@pytest.mark.parametrize("seconds", [0.5, 3])
def test_killed_before_the_first_batch(folder, options, whole, seconds):
    name = f"early_{seconds}"
    process = start(folder, *options, f"output_dir={name}")
    time.sleep(seconds)
    kill_group(process)
    run(folder, *options, f"output_dir={name}")
    assert values(folder / name) == whole


@pytest.mark.parametrize("devices", [1, 2])
def test_sigterm_stops_after_the_batch(folder, options, whole, devices):
    """Only the main process gets the signal; the others stop with it."""
    name = f"stopped_{devices}"
    directory, command = folder / name, [f"output_dir={name}", f"trainer.devices={devices}"]
    process = start(folder, *options, *command)
    wait_for_parts(process, directory, 3)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    kept = parts(directory)
    message = f"Stopped: {len(kept)} of {NUM_BATCHES} batches are on disk; the same command"
    assert [line.startswith(message) for line in without_bar(err)] == [True]
    assert out == ""
    assert 3 <= len(kept) < NUM_BATCHES
    run(folder, *options, *command)
    assert kept.items() <= parts(directory).items()
    assert values(directory) == whole


def test_sigterm_to_another_process_stops_all(folder, options, whole):
    """As the scheduler of another node sends it: the main process reports it all the same."""
    process = start(folder, *options, "output_dir=other", "trainer.devices=2")
    wait_for_parts(process, folder / "other", 3)
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    wait_for_end(child)
    kept = parts(folder / "other")
    assert 3 <= len(kept) < NUM_BATCHES
    run(folder, *options, "output_dir=other", "trainer.devices=2")
    assert kept.items() <= parts(folder / "other").items()
    assert values(folder / "other") == whole


def test_sigterm_before_the_first_batch_ends_all_processes(folder, options):
    process = start(folder, *options, "output_dir=early", "trainer.devices=2")
    child = wait_for_child(process)
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    wait_for_end(child)


def test_a_process_that_dies_ends_the_run(folder, options, whole):
    process = start(folder, *options, "output_dir=orphans", "trainer.devices=2")
    wait_for_parts(process, folder / "orphans", 2)
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode != 0
    kept = parts(folder / "orphans")
    assert len(kept) < NUM_BATCHES
    run(folder, *options, "output_dir=orphans")
    assert kept.items() <= parts(folder / "orphans").items()
    assert values(folder / "orphans") == whole


def test_another_run_may_finish_while_processes_start(folder, options, whole):
    """The parent saw a batch that remains, its child sees none: neither waits for ever."""
    run(folder, *options, "output_dir=two")
    part, hidden = folder / "two" / "scores" / "batch_000001.parquet", folder / "hidden"
    shutil.move(part, hidden)
    process = start(folder, *options, "output_dir=two", "trainer.devices=2")
    wait_for_child(process)
    shutil.move(hidden, part)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert values(folder / "two") == whole


def test_processes_of_torchrun_score_once_and_report_again(folder, options, whole):
    script = [str(ROOT / "evaluate.py"), *options, "output_dir=torchrun", "trainer.devices=2"]
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *script],
            cwd=folder,
            env=os.environ | QUIET,
            check=True,
            capture_output=True,
            timeout=300,
        )
        assert values(folder / "torchrun") == whole


def test_a_full_disk_is_named(folder, options):
    """No file may grow beyond 4 KiB: settings fit, scores do not."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    _, err = run(folder, *options, "output_dir=full", code=1, preexec_fn=limit)
    last = error_line(err)
    assert last.startswith("error: full/scores/batch_000000.parquet: cannot be written: ")
    assert "File too large" in last
    assert not parts(folder / "full")
