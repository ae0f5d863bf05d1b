"""train.py as users run it: real processes, real kills."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tube_lightning.checkpoints import load_arm, load_block_model

ROOT = Path(__file__).parent.parent
TINY = ["network.hidden_dim=16", "network.n_blocks=1", "network.n_heads=2", "batch_size=4"]
FAST = [*TINY, "trainer.limit_val_batches=1", "trainer.accelerator=cpu", "network.dropout=0.1"]


def command(output_dir, *options):
    return [sys.executable, str(ROOT / "train.py"), f"output_dir={output_dir}", *FAST, *options]


def run(output_dir, *options, check=True):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command(output_dir, *options),
        check=check,
        capture_output=True,
        text=True,
        env=environment,
        cwd=output_dir.parent,
    )


def test_trains_and_saves_what_the_loaders_read(tmp_path):
    run(tmp_path / "bd3lm", "objective=bd3lm", "objective.block_size=8", "trainer.max_steps=3")
    model = load_block_model(tmp_path / "bd3lm" / "model")
    assert model.block_size == 8


def test_the_newest_state_has_the_weights_that_are_saved_and_finishes_again(tmp_path):
    """A run that was killed after its last step, before it saved the model, saves the same."""
    options = ["trainer.max_steps=4", "checkpoint_every=2", "optimizer.learning_rate=0.1"]
    run(tmp_path / "run", *options)
    saved = load_file(tmp_path / "run/model/model.safetensors")
    newest = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    for name, tensor in newest["state_dict"].items():
        assert tensor.equal(saved[name.replace("network.", "backbone.")]), name
    raw = newest["current_model_state"]
    assert not all(tensor.equal(raw[name]) for name, tensor in newest["state_dict"].items())
    shutil.rmtree(tmp_path / "run/model")
    run(tmp_path / "run", *options)
    again = load_file(tmp_path / "run/model/model.safetensors")
    assert all(tensor.equal(again[name]) for name, tensor in saved.items())


@pytest.mark.slow
def test_trains_an_arm_too(tmp_path):
    run(tmp_path / "arm", "objective=arm", "trainer.max_steps=2")
    assert load_arm(tmp_path / "arm" / "model").vocab_size == 1025


@pytest.mark.slow
def test_fine_tuning_starts_from_the_given_weights(tmp_path):
    run(tmp_path / "mdlm", "objective=mdlm", "trainer.max_steps=2")
    start = tmp_path / "mdlm" / "model"
    run(
        tmp_path / "block",
        f"init_from={start}",
        "objective=bd3lm",
        "trainer.max_steps=1",
        "optimizer.learning_rate=0",
    )
    before, after = (load_file(p / "model.safetensors") for p in (start, tmp_path / "block/model"))
    for name in before:
        assert before[name].equal(after[name]), name


def test_another_configuration_is_refused_by_key(tmp_path):
    run(tmp_path / "run", "trainer.max_steps=1")
    again = run(tmp_path / "run", "trainer.max_steps=1", "seed=7", check=False)
    assert again.returncode != 0
    assert "seed: there 0, now 7" in again.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model=demo", "network=demo"),
        ("model.hidden_dim=64", "network.hidden_dim=64"),
        ("+model.depth=2", "+network.depth=2"),
        ("++model.hidden_dim=64", "++network.hidden_dim=64"),
        ("~model", "~network"),
        ("~model.dropout=0.1", "~network.dropout=0.1"),
    ],
)
def test_the_former_key_is_refused_by_its_new_name_in_one_line(tmp_path, old, new):
    done = run(tmp_path / "run", old, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    line = f"error: model: this key is called network now: expected {new}, got {old}\n"
    assert done.stderr == line
    assert not (tmp_path / "run").exists()


def test_other_keys_and_values_may_contain_the_former_name(tmp_path):
    done = run(tmp_path / "run", "init_from=model", "+models=2", "+my.model=3", "--cfg=job")
    assert "\ninit_from: model\n" in done.stdout


def test_help_names_the_networks():
    command = [sys.executable, str(ROOT / "train.py"), "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "\nnetwork: bytes, demo, lm1b, small\n" in done.stdout
    assert "\nmodel:" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, devices):
    options = ["trainer.max_steps=60", "checkpoint_every=5", "trainer.val_check_interval=30"]
    options += [f"trainer.devices={devices}", "optimizer=muon", "objective.copies=2"]
    options += ["keep_every=20", "trainer.accumulate_grad_batches=2"]
    run(tmp_path / "whole", *options)
    process = subprocess.Popen(
        command(tmp_path / "killed", *options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "last.ckpt").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)  # the other rank, too
    process.wait()
    assert not (tmp_path / "killed" / "model").exists()
    run(tmp_path / "killed", *options)
    whole, killed = (
        load_file(tmp_path / d / "model/model.safetensors") for d in ("whole", "killed")
    )
    for name in whole:
        assert whole[name].equal(killed[name]), name
    for step in (20, 40, 60):
        kept = [tmp_path / d / f"models/step_{step}" for d in ("whole", "killed")]
        one, other = (load_file(folder / "model.safetensors") for folder in kept)
        assert all(one[name].equal(other[name]) for name in one)
        costs = [json.loads(folder.with_suffix(".json").read_text()) for folder in kept]
        assert costs[0]["sequences"] == costs[1]["sequences"] == step * 2 * 4


@pytest.mark.slow
def test_a_block_model_starts_from_a_kept_arm(tmp_path):
    run(tmp_path / "arm", "objective=arm", "trainer.max_steps=4", "keep_every=2")
    early = tmp_path / "arm/models/step_2"
    done = run(tmp_path / "block", f"init_from={early}", "trainer.max_steps=1")
    assert "the mask embedding is the mean of the others; adaLN is new" in done.stderr
    assert load_block_model(tmp_path / "block" / "model").block_size == 4


@pytest.mark.slow
def test_two_processes_train_together(tmp_path):
    run(tmp_path / "ddp", "trainer.devices=2", "trainer.strategy=ddp", "trainer.max_steps=3")
    load_block_model(tmp_path / "ddp" / "model")
