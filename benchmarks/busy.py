"""How much slower an evaluation is beside others: python -m benchmarks.busy [--write].

One batch of the embedded model by ``evaluate.py``, start to end, alone and beside as many busy
processes as there are CPUs. Whoever shares fairly takes a share of the CPU's time; threads that
spin while they wait take a multiple of it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.performance_page import run_as_command

ROOT = Path(__file__).parent.parent
NUM_BUSY = 2
LIMIT_SECONDS = 600
SETTINGS: dict[str, dict[str, str]] = {
    "asleep (default)": {},
    "spinning, as OpenMP's own": {"GOMP_SPINCOUNT": "300000"},
}
_CHOICES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@dataclass(frozen=True)
class Run:
    """What one evaluation took."""

    seconds: float
    cpu_seconds: float


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep so many CPUs busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def evaluate_once(chosen: dict[str, str]) -> Run:
    """Evaluate one batch in a process whose user chose nothing else."""
    environment = {k: v for k, v in os.environ.items() if k not in _CHOICES} | chosen
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "evaluate.py"), "num_batches=1"]
        before, start = os.times(), time.perf_counter()
        subprocess.run(
            [*command, f"output_dir={folder}/run"],
            check=True,
            capture_output=True,
            env=environment,
            timeout=LIMIT_SECONDS,
        )
        seconds, after = time.perf_counter() - start, os.times()
    cpu = after.children_user - before.children_user
    return Run(seconds, cpu + after.children_system - before.children_system)


def make_table() -> str:
    """Time every setting alone and beside busy processes."""
    alone = {name: evaluate_once(chosen) for name, chosen in SETTINGS.items()}
    with busy_processes(NUM_BUSY):
        beside = {name: evaluate_once(chosen) for name, chosen in SETTINGS.items()}
    lines = [
        f"`python evaluate.py num_batches=1`, {os.cpu_count()} CPUs, load "
        f"{os.getloadavg()[2]:.1f} over the last 15 minutes, one run each:",
        "",
        f"| threads wait | alone | beside {NUM_BUSY} busy processes | ratio | seconds of CPU |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, run in alone.items():
        other = beside[name]
        lines.append(
            f"| {name} | {run.seconds:.1f} s | {other.seconds:.1f} s | "
            f"{other.seconds / run.seconds:.2f} | {run.cpu_seconds:.1f}, {other.cpu_seconds:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_as_command("busy", "Time an evaluation beside busy processes.", make_table)
