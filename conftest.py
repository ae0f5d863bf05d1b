"""Names that every docstring example may use without importing them."""

from typing import Any

import pytest
import torch

import tube_lightning.bounds


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace["elbo_k"] = tube_lightning.bounds.elbo_k
