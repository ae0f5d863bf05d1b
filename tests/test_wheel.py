"""The package as users install it: a wheel, an environment outside of the clone, one command."""

import json
import os
import re
import site
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import tube_lightning
from tube_lightning.programs.command import PROGRAMS

ROOT = Path(__file__).parent.parent
MINE = """\
# @package _global_
batch_size: 4
num_batches: 3
output_dir: mine
"""


def test_the_version_has_one_home():
    assert re.fullmatch(r"\d+\.\d+\.\d+", tube_lightning.__version__)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tube_lightning.__version__
    assert f"\n## {tube_lightning.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]


def test_the_command_without_a_program_lists_all():
    command = [sys.executable, "-m", "tube_lightning.programs"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(f"\n  {name} " in done.stdout for name in PROGRAMS)
    done = subprocess.run([*command, "evalute"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("error: expected one of evaluate, train, ")
    assert done.stderr.endswith("got 'evalute'\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the wheel, and what it depends on from here; return a function that runs it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    (wheel,) = folder.glob("tube_lightning-*.whl")
    venv.create(folder / "environment", with_pip=True)
    (packages,) = (folder / "environment").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    programs = folder / "environment" / "bin"
    pip = [programs / "python", "-m", "pip", "install", "--no-index", "--no-deps", wheel]
    subprocess.run(pip, check=True, cwd=folder, env=environment, capture_output=True)

    def run(*words, cwd, code=0):
        done = subprocess.run(
            [programs / "tube-lightning", *words],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    run.wheel = wheel
    return run


@pytest.mark.slow
def test_the_wheel_has_configurations_and_job_scripts_and_nothing_of_ours(installed):
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    for folder in ("configs", "slurm"):
        here = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
        assert {f"tube_lightning/{name}" for name in here} <= names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"tube_lightning", f"tube_lightning-{tube_lightning.__version__}.dist-info"}
    assert installed("--version", cwd="/") == f"tube-lightning {tube_lightning.__version__}\n"


@pytest.mark.slow
def test_the_demo_runs_and_is_reported_again(installed, tmp_path):
    out = installed("evaluate", "trainer.accelerator=cpu", "output_dir=demo", cwd=tmp_path)
    assert "The ARM wins" in out
    results = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert round(results["regimes"]["ao_arm"]["exact"]["ppl"], 2) == 24.58
    assert "The ARM wins" in installed("report", "demo", cwd=tmp_path)


@pytest.mark.slow
def test_experiments_of_ones_own_on_two_processes(installed, tmp_path):
    (tmp_path / "my" / "experiment").mkdir(parents=True)
    (tmp_path / "my" / "experiment" / "mine.yaml").write_text(MINE)
    own = ["--config-dir", "my", "experiment=mine", "trainer.accelerator=cpu"]
    installed("evaluate", *own, "trainer.devices=2", cwd=tmp_path)
    assert len(list((tmp_path / "mine" / "scores").glob("*.parquet"))) == 3


@pytest.mark.slow
def test_job_scripts_are_written_once(installed, tmp_path):
    assert installed("slurm", cwd=tmp_path).split() == [
        f"slurm/{path.name}" for path in sorted((ROOT / "slurm").iterdir())
    ]
    installed("slurm", cwd=tmp_path, code=2)
