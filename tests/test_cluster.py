"""Processes on clusters: Lightning's plugin, refused sweeps, and the way out at SIGTERM."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from safetensors.torch import load_file

from tube_lightning.cluster import check_processes, cluster_plugins

ROOT = Path(__file__).parent.parent
TINY = ["network.hidden_dim=16", "network.n_blocks=1", "network.n_heads=2", "batch_size=4"]
TASK = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NAME": "train",
    "SLURM_NTASKS": "1",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_NNODES": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}


@pytest.fixture
def task(monkeypatch):
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    return monkeypatch


def command(output_dir, *options):
    fast = ["trainer.limit_val_batches=1", "trainer.accelerator=cpu", f"output_dir={output_dir}"]
    return [sys.executable, str(ROOT / "train.py"), *TINY, *fast, *options]


def plainly():
    return os.environ | {"OMP_NUM_THREADS": "1"}


def test_lightning_does_not_queue_slurm_jobs_by_itself(task):
    (environment,) = cluster_plugins()
    trainer = L.Trainer(plugins=[environment], accelerator="cpu", devices=1, logger=False)
    used = trainer._accelerator_connector.cluster_environment
    assert isinstance(used, SLURMEnvironment)
    assert not used.auto_requeue


@pytest.mark.parametrize(("tasks", "devices"), [("1", 2), ("4", 1)])
def test_tasks_that_are_not_the_devices_are_refused(task, tasks, devices):
    task.setenv("SLURM_NTASKS", tasks)
    task.setenv("SLURM_NTASKS_PER_NODE", tasks)
    trainer = L.Trainer(plugins=cluster_plugins(), accelerator="cpu", devices=devices, logger=False)
    with pytest.raises(ValueError, match=rf"expected one process for each of the {tasks} tasks"):
        check_processes(trainer)


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_interactive_jobs_start_their_own_processes(task, name):
    task.setenv("SLURM_JOB_NAME", name)
    assert cluster_plugins() == []


def test_torchrun_goes_before_slurm(task):
    for name in ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "GROUP_RANK"):
        task.setenv(name, "0")
    assert cluster_plugins() == []


def test_elsewhere_nothing_is_changed(monkeypatch):
    for name in TASK:
        monkeypatch.delenv(name, raising=False)
    assert cluster_plugins() == []


def test_a_sweep_over_many_processes_is_refused(tmp_path):
    options = ["seed=0,1", "trainer.devices=2", "trainer.max_steps=1", "--multirun"]
    done = subprocess.run(
        command(tmp_path / "run", *options),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=plainly(),
    )
    assert done.returncode != 0
    assert "--multirun: expected a single process, got 2" in done.stderr
    assert not (tmp_path / "run").exists()


def stopped_on_the_way(output_dir, *options, log, until="last.ckpt", by=signal.SIGTERM):
    """Train; send a signal once there is a file, a state to resume from; return the exit code."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command(output_dir, *options),
            cwd=output_dir.parent,
            env=plainly(),
            stdout=output,
            stderr=output,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
        )
    try:
        deadline = time.monotonic() + 600
        while not (output_dir / until).exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(by)
        return process.wait(timeout=300)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_control_c_leaves_a_state_and_says_so(tmp_path):
    options = ["trainer.max_steps=100000", "trainer.log_every_n_steps=1"]
    log, curves = tmp_path / "log", "logs/version_0/metrics.csv"
    code = stopped_on_the_way(tmp_path / "run", *options, log=log, until=curves, by=signal.SIGINT)
    assert code == 130, log.read_text()
    told = re.search(r"^Stopped at step (\d+); the same command continues", log.read_text(), re.M)
    state = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    assert told is not None
    assert state["global_step"] == int(told[1])


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_sigterm_stops_training_with_a_state_that_resumes_to_the_same_weights(tmp_path, devices):
    options = [f"trainer.devices={devices}", "trainer.max_steps=60", "checkpoint_every=5"]
    options += ["trainer.val_check_interval=30", "network.dropout=0.1"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    code = stopped_on_the_way(stopped, *options, log=tmp_path / "log")
    assert code == 143, (tmp_path / "log").read_text()
    assert not (stopped / "model").exists()
    for directory in (stopped, whole):
        subprocess.run(
            command(directory, *options),
            check=True,
            cwd=tmp_path,
            env=plainly(),
            capture_output=True,
        )
    assert sorted(p.name for p in stopped.glob("*.ckpt")) == ["last.ckpt"]
    resumed, uninterrupted = (
        load_file(directory / "model" / "model.safetensors") for directory in (stopped, whole)
    )
    for name in uninterrupted:
        assert uninterrupted[name].equal(resumed[name]), name
