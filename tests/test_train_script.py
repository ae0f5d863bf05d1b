"""train.py as users run it: real processes, real kills."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tube_lightning.checkpoints import (
    load_arm,
    load_block_model,
    read_checkpoint,
    read_sizes,
)
from tube_lightning.networks import model_identity

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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 20 steps, its weights and their average apart."""
    folder = tmp_path_factory.mktemp("train") / "run"
    done = run(folder, *OF_20_STEPS)
    return folder, done


OF_20_STEPS = [
    "trainer.max_steps=20",
    "checkpoint_every=10",
    "optimizer.learning_rate=0.01",
    "schedule=linear",
    "trainer.val_check_interval=10",
]


@pytest.fixture
def copied(finished, tmp_path):
    """The same run, to be changed."""
    return shutil.copytree(finished[0], tmp_path / "run")


def test_the_newest_state_has_the_weights_that_are_saved_and_finishes_again(copied):
    """A run that was killed after its last step, before it saved the model, saves the same."""
    saved = load_file(copied / "model/model.safetensors")
    newest = torch.load(copied / "last.ckpt", weights_only=True)
    for name, tensor in newest["state_dict"].items():
        assert tensor.equal(saved[name.replace("network.", "backbone.")]), name
    raw = newest["current_model_state"]
    assert not all(tensor.equal(raw[name]) for name, tensor in newest["state_dict"].items())
    shutil.rmtree(copied / "model")
    run(copied, *OF_20_STEPS)
    again = load_file(copied / "model/model.safetensors")
    assert all(tensor.equal(again[name]) for name, tensor in saved.items())


def test_the_state_and_the_folder_of_a_run_are_read_as_its_model(finished):
    folder, _ = finished
    model = read_checkpoint(folder / "model")
    same = model_identity(load_block_model(folder / "model"))  # so scores of one are the other's
    raw = torch.load(folder / "last.ckpt", weights_only=True)["current_model_state"]
    for source in (folder, folder / "last.ckpt"):
        found = read_checkpoint(source)
        assert found.config == model.config
        assert all(t.equal(found.state_dict()[name]) for name, t in model.state_dict().items())
        assert read_sizes(source) == (1025, 128)
        assert load_block_model(source).block_size == 4
        assert model_identity(load_block_model(source)) == same
    for source in (folder, folder / "last.ckpt"):
        trained = read_checkpoint(source, weights="raw").state_dict()
        assert all(t.equal(raw[f"network.{name}"]) for name, t in trained.items())


def test_a_run_that_has_not_ended_says_what_to_give(copied):
    shutil.rmtree(copied / "model")
    with pytest.raises(ValueError, match=r"has not ended; its newest state is .*last\.ckpt: give"):
        load_block_model(copied)


def test_the_screen_has_steps_bits_and_the_next_command_and_nothing_of_others(finished):
    folder, done = finished
    lines = (done.stdout + done.stderr).splitlines()
    bits = r"\d+\.\d{4}"
    assert len(lines) == 3, lines
    for line, step in zip(lines[:2], (10, 20), strict=True):
        told = rf"step {step} of 20, loss {bits}, validation {bits} bits per token"
        assert re.fullmatch(told, line), line
    model = folder / "model"
    assert lines[2] == (
        f"The model is in {model}; evaluate it: python evaluate.py model.checkpoint={model}"
    )


def test_a_finished_run_is_extended_with_the_values_of_its_first_start(copied):
    """More steps, other logging: yes; derived values stay; the schedule says what it does."""
    first = json.loads((copied / "config.json").read_text())
    assert first["schedule"]["warmup_steps"] == first["module"]["schedule"]["warmup_steps"] == 2
    assert first["module"]["ema_decay"] == 0.5
    longer = [*OF_20_STEPS[1:], "trainer.max_steps=40", "trainer.log_every_n_steps=1"]
    done = run(copied, *longer, "keep_every=20")
    assert "The schedule ends at step 40 instead of 20: at step 20 the learning rate is 51% of" in (
        done.stderr
    )
    assert "step 40 of 40" in done.stderr
    record = json.loads((copied / "config.json").read_text())
    assert record["trainer"]["max_steps"] == record["schedule"]["total_steps"] == 40
    for kept in ("warmup_steps",):
        assert record["schedule"][kept] == first["schedule"][kept]
    assert record["module"]["ema_decay"] == 0.5
    state = torch.load(copied / "last.ckpt", weights_only=True)
    assert state["global_step"] == 40
    whole = read_checkpoint(copied / "models/step_40").state_dict()
    assert all(t.equal(whole[n]) for n, t in read_checkpoint(copied).state_dict().items())


def test_a_few_steps_learn_something(finished):
    """Uniform is 10 bits per token: a run of 20 tiny steps is well below it."""
    _, done = finished
    losses = re.findall(r"validation (\d+\.\d+) bits", done.stderr)
    assert float(losses[-1]) < 9.0


def test_without_files_to_train_on_it_says_which_settings_name_them(tmp_path):
    done = run(tmp_path / "run", "data=text", "data.path=own.txt", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: data.train.paths and data.validation.paths: expected files, folders or patterns, "
    )
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_does_not_fit_is_refused_and_the_mended_command_trains(tmp_path):
    """A start that failed has trained nothing: it keeps nobody out of its directory."""
    (tmp_path / "own.txt").write_text("to be or not to be " * 200)
    options = ["data=text", "data.train.paths=own.txt", "data.validation.paths=[own.txt]"]
    options += ["network=bytes", "trainer.max_steps=2"]
    done = run(tmp_path / "run", *options, "data.tokenizer=demo", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: tokenizer: expected 256 tokens like the model's, or 257 with its mask token, got "
        "1024 of demo\n"
    )
    last = run(tmp_path / "run", *options).stderr.splitlines()[-1]
    of_text = "data=text 'data.path=[own.txt]' data.tokenizer=byte"
    assert last.endswith(f"python evaluate.py model.checkpoint={tmp_path}/run/model {of_text}")


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


def test_another_configuration_is_refused_by_key_in_a_line(finished):
    again = run(finished[0], *OF_20_STEPS, "seed=7", check=False)
    assert again.returncode == 1
    told, where, *more = again.stderr.splitlines()
    assert told == (
        f"error: output_dir: {finished[0]} belongs to a run with another seed (seed: there 0, "
        "now 7); choose another output_dir, or remove it"
    )
    assert where == "(HYDRA_FULL_ERROR=1 shows where)"
    assert more == []


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
