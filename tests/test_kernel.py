"""The attention kernel, proven without a GPU: its numbers and its compilation.

Each in a process of its own: Triton reads on import whether it interprets or compiles.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="no Triton on this machine")


def run(*command, **environment):
    """Run a command of Python at the root, and show what it said if it fails."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TRITON"))}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_numbers_in_the_interpreter():
    options = ["--numprocesses=0", "-q", "tests/interpreted_kernel.py"]
    told = run("-m", "pytest", *options, TRITON_INTERPRET="1")
    assert "passed" in told
    assert "skipped" not in told


def test_the_published_heads_compile_without_spills():
    told = run("-m", "benchmarks.kernels", "--width", "64", "--dtype", "fp32", "bf16")
    assert "spilled bytes: 0" in told


def test_a_tile_that_is_too_large_is_found():
    code = (
        "import torch; from benchmarks.kernels import Tile, compile_tile\n"
        "found = compile_tile(90, torch.float32, 64, Tile(64, 64, 8, 2))\n"
        "assert found.spilled > 0 and found.registers == 255, found\n"
        "print(found.complaint())\n"
    )
    assert "expected no spilled registers, got" in run("-c", code)


@pytest.mark.slow
def test_every_tile_compiles_without_spills():
    assert "spilled bytes: 0" in run("-m", "benchmarks.kernels")
