"""How fast the device multiplies matrices of the published network's shapes.

A product in bf16 ends the process on some CPUs (an illegal instruction), so there it is measured in
a process of its own: ``python -m tube_lightning.doctor.rates``.
"""

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tube_lightning.doctor.devices import synchronize
from tube_lightning.networks import linear

_DIM = 768
_SECONDS = 0.5
"""How long each rate is measured."""
_PATIENCE = 20
"""Seconds that a process of its own has, start included."""


@dataclass(frozen=True)
class MatmulRate:
    """One dtype's rate, or why there is none."""

    dtype: str
    flop_per_second: float | None
    reason: str | None = None


def measure_rates(device: torch.device) -> list[MatmulRate]:
    """Measure fp32, tf32 where there is such a thing, and bf16."""
    with _fp32_precision("highest"):
        rates = [MatmulRate("fp32", _matmul_rate(device, torch.float32))]
    if device.type == "cuda":
        with _fp32_precision("high"):
            rates.append(MatmulRate("tf32", _matmul_rate(device, torch.float32)))
    else:
        rates.append(MatmulRate("tf32", None, "CUDA only"))
    if device.type == "cpu":
        return [*rates, _rate_of_a_process_that_may_die()]
    return [*rates, MatmulRate("bf16", _matmul_rate(device, torch.bfloat16))]


def _matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return FLOP/s of the MLP's first product, the median of as many as fit into the time."""
    tokens = 1024 if device.type == "cpu" else 16_384
    x = torch.randn(tokens, _DIM, device=device).to(dtype)
    weight = torch.randn(4 * _DIM, _DIM, device=device).to(dtype)
    taken: list[float] = []
    with torch.inference_mode():
        linear(x, weight)
        synchronize(device)
        end = time.perf_counter() + _SECONDS
        while not taken or time.perf_counter() < end:
            start = time.perf_counter()
            linear(x, weight)
            synchronize(device)
            taken.append(time.perf_counter() - start)
    return 2 * tokens * 4 * _DIM**2 / statistics.median(taken)


@contextmanager
def _fp32_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _rate_of_a_process_that_may_die() -> MatmulRate:
    command = [sys.executable, "-m", "tube_lightning.doctor.rates"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return MatmulRate("bf16", None, f"no result in {_PATIENCE} s")
    return read_rate(ran.returncode, ran.stdout)


def read_rate(returncode: int, stdout: str) -> MatmulRate:
    """Read what the process said before it ended, or tell how it died.

    >>> read_rate(0, "1.5e11").flop_per_second, read_rate(-4, "").reason
    (150000000000.0, 'the process died of SIGILL; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 may help')
    """
    if returncode == -signal.SIGILL:
        hint = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 may help"
        return MatmulRate("bf16", None, f"the process died of SIGILL; {hint}")
    if returncode < 0:
        name = signal.Signals(-returncode).name
        return MatmulRate("bf16", None, f"the process died of {name}")
    if returncode:
        return MatmulRate("bf16", None, f"the process ended with code {returncode}")
    return MatmulRate("bf16", float(stdout))


if __name__ == "__main__":
    print(_matmul_rate(torch.device("cpu"), torch.bfloat16))
