"""A disk that fills up: the last good file stays, the error is a line, the same command goes on."""

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from evaluation_runs import QUIET, run, write_tokens
from safetensors.torch import load_file

from tube_lightning.whole_files import finished_file, remove_unfinished

ROOT = Path(__file__).parent.parent
TINY = ["network.hidden_dim=16", "network.n_blocks=1", "network.n_heads=2", "batch_size=4"]
TRAINING = [*TINY, "trainer.limit_val_batches=0", "trainer.accelerator=cpu", "checkpoint_every=2"]


def start(program, *options, cwd, most_bytes=None):
    """Start a program that can write no file larger than ``most_bytes``."""

    def limit():
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.Popen(
        [sys.executable, str(ROOT / program), *options],
        cwd=cwd,
        env=os.environ | QUIET,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def end(process, code=0):
    """Return the lines of an error."""
    _, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return [line for line in errors.splitlines() if line.startswith("error: ")]


def leftovers(directory):
    return [path for path in directory.rglob("*") if path.name.endswith(".unfinished")]


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    (tmp_path / ".file.abc.unfinished").write_text("of a killed process")
    with pytest.raises(OSError, match="file: cannot be written: it is full"):
        fail_half_way(path)
    assert path.read_text() == "before"
    remove_unfinished(path)
    assert sorted(tmp_path.iterdir()) == [path]


def fail_half_way(path):
    with finished_file(path) as unfinished:
        unfinished.write_text("hal")
        raise OSError("it is full")


@pytest.mark.slow
def test_a_state_that_does_not_fit_leaves_the_one_before(tmp_path):
    options = [*TRAINING, "output_dir=run"]
    assert end(start("train.py", *options, "trainer.max_steps=2", cwd=tmp_path)) == []
    state = tmp_path / "run" / "last.ckpt"
    before, size = state.read_bytes(), state.stat().st_size
    shutil.copytree(tmp_path / "run", tmp_path / "whole")

    options += ["trainer.max_steps=4"]
    full = start("train.py", *options, cwd=tmp_path, most_bytes=size // 2)
    assert end(full, code=1) == [
        f"error: {state}: cannot be written: File too large; the state before it is kept; "
        "the same command continues"
    ]
    assert state.read_bytes() == before
    assert not leftovers(tmp_path)
    for name in ("run", "whole"):
        end(start("train.py", *options, f"output_dir={name}", cwd=tmp_path))
    one, other = (load_file(tmp_path / n / "model/model.safetensors") for n in ("run", "whole"))
    assert all(one[name].equal(other[name]) for name in other)


@pytest.mark.slow
def test_samples_that_do_not_fit_leave_the_file_before(tmp_path):
    output = tmp_path / "samples.parquet"
    options = [
        "device=cpu",
        "num_sequences=8",
        "batch_size=4",
        "length=8",
        "output=samples.parquet",
        "seed=1",
    ]
    end(start("sample.py", *options, cwd=tmp_path))
    before = output.read_bytes()
    more = [*options, "num_sequences=400", "batch_size=100", "overwrite=true"]
    full = start("sample.py", *more, cwd=tmp_path, most_bytes=16_000)
    (line,) = end(full, code=1)
    assert line.startswith("error: samples.parquet: cannot be written: ")
    assert line.endswith("File too large")
    assert output.read_bytes() == before
    end(start("sample.py", *more, cwd=tmp_path))
    assert pq.read_table(output).num_rows == 400
    assert sorted(tmp_path.iterdir()) == [output]


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder):
    """Leave no byte free; return the file that takes them."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


@pytest.mark.slow
def test_a_training_on_a_disk_that_fills_up_goes_on_when_there_is_room(small_disk, tmp_path):
    options = [*TRAINING, "trainer.max_steps=200", "network.dropout=0.1"]
    output = small_disk / "run"
    process = start("train.py", *options, f"output_dir={output}", cwd=tmp_path)
    deadline = time.monotonic() + 300
    while not (output / "last.ckpt").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    filler = fill(small_disk)
    (line,) = end(process, code=1)
    assert "No space left on device" in line
    state = torch.load(output / "last.ckpt", weights_only=True)
    assert 0 < state["global_step"] < 200
    filler.unlink()
    end(start("train.py", *options, f"output_dir={output}", cwd=tmp_path))
    end(start("train.py", *options, "output_dir=whole", cwd=tmp_path))
    one, other = (load_file(r / "model/model.safetensors") for r in (output, tmp_path / "whole"))
    assert all(one[name].equal(other[name]) for name in other)


@pytest.mark.slow
def test_a_report_on_a_full_disk_is_made_again(small_disk, tmp_path):
    options = write_tokens(tmp_path, 4)
    run(tmp_path, *options, f"output_dir={small_disk / 'run'}")
    results = small_disk / "run" / "results.json"
    before = results.read_bytes()
    filler = fill(small_disk)
    command = [sys.executable, "-m", "tube_lightning.report", str(small_disk / "run")]
    full = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert full.returncode == 2
    assert full.stderr.startswith("error: ")
    assert "No space left on device" in full.stderr
    assert full.stderr.count("\n") == 1
    assert results.read_bytes() == before
    assert not leftovers(small_disk)
    filler.unlink()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
