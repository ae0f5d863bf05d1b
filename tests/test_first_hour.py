"""A stranger's first hour, command by command: nothing may stumble."""

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
from test_latex import compile_article
from tiny_gpt import save_tiny_gpt

from tube_lightning.data import demo_documents

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "first_hour.ipynb"
SMALL = ["network.hidden_dim=32", "network.n_blocks=1", "network.n_heads=2", "batch_size=8"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
pytestmark = pytest.mark.slow


class Stranger:
    """Somebody in a folder of their own, with some texts and a terminal."""

    def __init__(self, folder):
        self.folder = folder
        texts = [document.text for document in demo_documents("heldout")]
        self.write("train.jsonl", texts[:30])
        self.write("heldout.jsonl", texts[30:42])
        save_tiny_gpt(folder / "gpt", texts[:30], length=64)

    def write(self, name, texts):
        lines = (json.dumps({"text": text}) + "\n" for text in texts)
        (self.folder / name).write_text("".join(lines))

    def start(self, *words):
        script, *options = words
        command = [sys.executable, *([str(ROOT / script)] if script != "-m" else ["-m"]), *options]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        assert "Warning" not in err
        return out, err

    def results(self, name):
        return json.loads((self.folder / name / "results.json").read_text())


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Stranger(tmp_path_factory.mktemp("hour"))


TRAIN = [
    "train.py",
    "data=text",
    "data.train.paths=train.jsonl",
    "data.validation.paths=heldout.jsonl",
    *SMALL,
    "optimizer=muon",
    "checkpoint_every=5",
    "trainer.accelerator=cpu",
    "trainer.val_check_interval=20",
    "output_dir=run",
]
EVALUATE = ["evaluate.py", "data=text", "data.path=heldout.jsonl", "length=64"]


@pytest.fixture(scope="module")
def trained(stranger):
    """Train for 60 steps; stop in the middle, go on, then train for 20 more."""
    first = stranger.start(*TRAIN, "trainer.max_steps=60")
    state, deadline = stranger.folder / "run" / "last.ckpt", time.monotonic() + 300
    while not state.exists():
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=300)
    assert first.returncode in (0, 128 + signal.SIGTERM), err  # 0 if it had just ended
    stranger.run(*TRAIN, "trainer.max_steps=60")
    _, err = stranger.run(*TRAIN, "trainer.max_steps=80")
    assert "step 80 of 80" in err
    assert "evaluate it: python evaluate.py model.checkpoint=run/model" in err
    return stranger


def test_samples_come_from_the_folder_of_the_run(trained):
    options = ["checkpoint=run", "num_sequences=2", "length=32", "output=samples.jsonl"]
    out, _ = trained.run("sample.py", *options)
    assert "2 sequences in samples.jsonl" in out


@pytest.fixture(scope="module")
def evaluated(trained):
    trained.run(*EVALUATE, "model.checkpoint=run/last.ckpt", "output_dir=by_state")
    trained.run(*EVALUATE, "model.checkpoint=run", "output_dir=by_folder")
    return trained


def test_the_state_and_the_folder_are_one_model_which_has_learned(evaluated):
    state, folder = (evaluated.results(name) for name in ("by_state", "by_folder"))
    one, other = (found["regimes"]["ao_arm"]["exact"]["ppl"] for found in (state, folder))
    assert one == pytest.approx(other, rel=1e-6)  # where tensors lie in memory may change a digit
    assert one < 600  # of 1,024 tokens, after 80 steps


def test_a_model_of_another_tokenizer_is_compared_per_byte(evaluated):
    """Random weights against a model that has learned a little: the verdict must see it."""
    arm = ["arm.checkpoint=gpt", "arm.tokenizer=gpt"]
    out, _ = evaluated.run(*EVALUATE, "model.checkpoint=run", *arm, "output_dir=by_folder")
    found = evaluated.results("by_folder")["per_byte"]
    assert found["winner"] == "model"
    assert found["bits_per_byte"]["exact"] < found["arm_bits_per_byte"]
    assert "is compared per byte, and is no surrogate" in out


def test_it_is_reported_again_and_fits_a_page(evaluated):
    options = ["by_state", "--cubo-beta", "3", "--output", "again"]
    evaluated.run("-m", "tube_lightning.report", *options)
    assert evaluated.results("again")["estimators"]["cubo_beta"] == 3
    if shutil.which("pdflatex") is not None:
        assert compile_article(evaluated.folder / "again", "table", "by-state") == []


def test_the_notebook_walks_the_same_way(tmp_path, monkeypatch):
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    said = " ".join("".join(output.get("text", "") for output in outputs).split())  # it is wrapped
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert "step 60 of 60" in said
    assert "The any-order model wins" in said
    assert "ipywidgets" not in said
    assert "Traceback" not in said
    shown = notebook.cells[-2].outputs[-1]["data"]
    assert "AO-ARM" in shown["text/markdown"]
    assert len(shown["text/plain"].splitlines()) < 30
