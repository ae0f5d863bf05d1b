"""evaluate.py on tiny networks: in processes of its own, or in this one."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
VOCABULARY, LENGTH = 40, 8
MODELS = [
    f"model.checkpoint={FIXTURES / 'bd3lm_block4'}",
    f"arm.checkpoint={FIXTURES / 'ar'}",
    "trainer.accelerator=cpu",
]
QUIET = {"OMP_NUM_THREADS": "1", "WANDB_SILENT": "true", "COLUMNS": "140"}
VALUES = ("regimes", "arm", "counts", "tails", "verdict", "data")
"""what does not depend on how, when and where batches were scored"""


def write_tokens(folder, num_sequences, length=LENGTH):
    """Write random token ids, and return the options that evaluate the tiny networks on them."""
    path = folder / "tokens.npy"
    shape = (num_sequences, length)
    np.save(path, np.random.default_rng(num_sequences).integers(0, VOCABULARY, shape))
    return [*MODELS, "data=text", f"data.path={path}", f"length={length}"]


def start(folder, *options, environment=None, **arguments):
    """Start evaluate.py in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "evaluate.py"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | QUIET if environment is None else environment,
        start_new_session=True,
        **arguments,
    )


def run(folder, *options, code=0, **arguments):
    """Run evaluate.py to its end and return what it printed: stdout, stderr."""
    process = start(folder, *options, **arguments)
    printed = process.communicate(timeout=600)
    assert process.returncode == code, printed
    return printed


def run_here(monkeypatch, folder, *options):
    """Run evaluate.py in this process, which spares its imports."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *options])
    runpy.run_path(str(ROOT / "evaluate.py"), run_name="__main__")


def results(directory):
    return json.loads((directory / "results.json").read_text())


def values(directory):
    whole = results(directory)
    return {name: whole[name] for name in VALUES}


def parts(directory):
    """Name the finished batches, and tell whether one was written again: inode and time."""
    found = {}
    for path in sorted((directory / "scores").glob("batch_*.parquet")):
        status = path.stat()
        found[path.name] = (status.st_ino, status.st_mtime_ns)
    return found


def without_bar(stderr):
    """Leave out the progress bar's lines."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stderr).replace("\r", "\n").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("scoring ")]


def error_line(stderr):
    """Return the last line of an error, before Hydra tells how to see more of it."""
    *_, last = [line for line in without_bar(stderr) if "HYDRA_FULL_ERROR" not in line]
    return last
