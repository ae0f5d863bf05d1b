"""The lattice refuses what it cannot mean, with the value in the message."""

import math

import jaxtyping
import pytest
import torch

from tube_lightning.lattice import (
    exact_cubo,
    exact_elbo,
    exact_log_likelihood,
    exact_log_likelihoods,
    score_orderings,
    score_partitions,
)
from tube_lightning.orderings import EqualChunks

CALLS = {
    "exact_log_likelihood": exact_log_likelihood,
    "exact_elbo": exact_elbo,
    "exact_cubo": exact_cubo,
    "score_orderings": lambda table: score_orderings(table, torch.zeros(1, table.shape[-1])),
    "score_partitions": lambda table: score_partitions(table, torch.zeros(1, table.shape[-1]), 2),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("shape", [(7, 3), (4, 3), (2, 16, 3), (1, 0)])
def test_shapes_that_are_no_lattice(call, shape):
    with pytest.raises(ValueError, match=r"^table: expected \[\.\.\., 2\*\*size, size\]") as error:
        call(torch.zeros(shape))
    assert str(error.value).endswith(f"got shape {shape}")


def test_no_lattice_axis():
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=r"^table: .* got shape \(8,\)$"):
            exact_log_likelihood(torch.zeros(8))
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.mark.parametrize("exact", [exact_log_likelihood, exact_elbo, exact_cubo])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_entries_that_are_no_log_probability(exact, value):
    table = torch.full((2, 8, 3), -1.0)
    table[1, 4, 0] = value
    with pytest.raises(ValueError, match=rf"^table: .* got {value} at index \(1, 4, 0\)$"):
        exact(table)


@pytest.mark.parametrize("steps", [0, -3])
@pytest.mark.parametrize("exact", [exact_log_likelihood, exact_elbo])
def test_steps_must_be_positive(exact, steps):
    with pytest.raises(ValueError, match=rf"^steps: .* got {steps}$"):
        exact(torch.zeros(4, 2), steps)


@pytest.mark.parametrize("beta", [0.5, -1.0, math.inf, math.nan])
def test_beta_must_be_at_least_one(beta):
    with pytest.raises(ValueError, match=rf"^beta: .* got {beta}$"):
        exact_cubo(torch.zeros(4, 2), beta)


@pytest.mark.parametrize(("size", "steps", "limit"), [(15, 4, 14), (17, None, 16)])
def test_blocks_that_are_too_large(size, steps, limit):
    """Refused before anything of their size is computed."""
    table = torch.zeros(1, 1).expand(2**size, size)
    with pytest.raises(ValueError, match=rf"at most {limit} positions .*steps={steps}, got {size}"):
        exact_log_likelihood(table, steps)


def test_no_regimes():
    with pytest.raises(ValueError, match="regimes: expected at least one, got none"):
        exact_log_likelihoods(torch.zeros(4, 2), [])


@pytest.mark.parametrize("group_size", [0, -1])
def test_group_size_must_be_positive(group_size):
    with pytest.raises(ValueError, match=rf"^group_size: .* got {group_size}$"):
        score_partitions(torch.zeros(4, 2), torch.zeros(1, 2), group_size)


def test_chunks_must_be_positive():
    with pytest.raises(ValueError, match=r"^EqualChunks: .* got 0$"):
        EqualChunks(0)
