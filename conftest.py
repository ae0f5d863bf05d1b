"""What tests share: the environment, and names that docstring examples need not import."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read on import; without it a failed load takes a minute

# bf16 matmuls of newer instruction sets can end the process on some virtual machines
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"

if "PYTEST_XDIST_WORKER" in os.environ:  # as many tests as cores run at once: one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

import tube_lightning.bounds
from tube_lightning.programs.evaluate import store_estimators

store_estimators()  # for tests that compose configurations

if find_spec("triton") is None:  # as on macOS: nothing else imports the kernel
    collect_ignore = ["tube_lightning/networks/prefix_kernel.py"]


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace["elbo_k"] = tube_lightning.bounds.elbo_k


@pytest.fixture(autouse=True)
def _same_estimators() -> Iterator[None]:
    """What a test registers, others do not see."""
    table = tube_lightning.bounds.ESTIMATORS
    before = dict(table)
    yield
    table.clear()
    table.update(before)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the slow part of a report where it is not what is tested."""
    monkeypatch.setattr("tube_lightning.report.write.write_figures", lambda *_: None)
