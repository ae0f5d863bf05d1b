"""Exact computations on the subset lattice against enumeration of every way to reveal a block."""

import math

import oracles
import pytest
import torch

from tube_lightning.lattice import (
    exact_cubo,
    exact_elbo,
    exact_log_likelihood,
    exact_log_likelihoods,
)
from tube_lightning.orderings import EqualChunks

REL = 1e-13  # a few hundred roundings of numbers of the same size


def tensor(table):
    return torch.tensor(table, dtype=torch.float64)


def random_tables(*shape, size):
    """Return tables of a leading shape with NaN and inf in the entries that must be ignored."""
    tables = tensor([oracles.random_table(seed, size) for seed in range(math.prod(shape))])
    junk = torch.tensor([math.nan, math.inf, -math.inf, 5.0], dtype=torch.float64)
    fill = junk[torch.arange(tables.numel()) % 4].view_as(tables)
    return torch.where(tables.isnan(), fill, tables).view(*shape, 2**size, size)


def ways(size, steps):
    if steps is None:
        return oracles.orders(size)
    if isinstance(steps, int):
        return oracles.assignments(size, steps)
    sizes = [len(range(chunk, size, steps.number)) for chunk in range(steps.number)]
    return oracles.chunkings(size, sizes)


CASES = (
    [(size, None) for size in range(1, 7)]
    + [(size, steps) for size in range(1, 5) for steps in range(1, 6)]
    + [(size, EqualChunks(steps)) for size in range(1, 6) for steps in range(1, 7)]
    + [(6, 2), (6, EqualChunks(4)), (5, 3)]
)

every_case = pytest.mark.parametrize(("size", "steps"), CASES)


@every_case
def test_likelihood_is_the_mean_over_all_ways(size, steps):
    table = oracles.random_table(seed=size, size=size)
    want = oracles.elbo_k(oracles.scores(table, ways(size, steps)))
    got = exact_log_likelihood(tensor(table), steps)
    assert got.dtype == torch.float64
    assert got.item() == pytest.approx(float(want), rel=REL)


@every_case
def test_elbo_is_the_mean_score_over_all_ways(size, steps):
    table = oracles.random_table(seed=10 + size, size=size)
    want = oracles.elbo(oracles.scores(table, ways(size, steps)))
    assert exact_elbo(tensor(table), steps).item() == pytest.approx(float(want), rel=REL)


@pytest.mark.parametrize(("size", "steps"), [(4, None), (3, 4), (4, 2), (5, EqualChunks(2))])
@pytest.mark.parametrize("beta", [1.0, 2.0, 3.7])
def test_cubo_is_that_of_all_ways(size, steps, beta):
    table = oracles.random_table(seed=20 + size, size=size)
    want = oracles.cubo(oracles.scores(table, ways(size, steps)), beta)
    assert exact_cubo(tensor(table), beta, steps).item() == pytest.approx(float(want), rel=REL)


@pytest.mark.parametrize("steps", [None, 2, 3, EqualChunks(2)])
def test_impossible_and_deep_conditionals(steps):
    """Entries of -inf and of -1e4 nats, where some ways stay possible; then none does."""
    table = oracles.random_table(seed=3, size=4)
    table[0][2] = table[0b0011][3] = table[0b1000][1] = -1e4
    table[0b0001][2] = -math.inf
    scores = oracles.scores(table, ways(4, steps))
    log_p, elbo = float(oracles.elbo_k(scores)), float(oracles.elbo(scores))
    assert exact_log_likelihood(tensor(table), steps).item() == pytest.approx(log_p, rel=REL)
    assert exact_elbo(tensor(table), steps).item() == pytest.approx(elbo, rel=REL)
    assert math.isinf(elbo) == (steps != EqualChunks(2))  # which never reveals {0} alone
    for row in table:
        row[2] = -math.inf
    assert exact_log_likelihood(tensor(table), steps).item() == -math.inf


def test_several_regimes_are_one_by_one():
    tables = random_tables(3, size=5)
    regimes = [4, None, EqualChunks(2), 1, 9, EqualChunks(7), 2]
    together = exact_log_likelihoods(tables, regimes)
    assert together.shape == (3, 7)
    for column, steps in enumerate(regimes):
        alone = exact_log_likelihood(tables, steps)
        torch.testing.assert_close(together[:, column], alone, rtol=REL, atol=0)


def test_one_step_is_the_sum_of_the_first_row():
    tables = random_tables(4, size=6)
    for regime in (1, EqualChunks(1)):
        for exact in (exact_log_likelihood, exact_elbo):
            torch.testing.assert_close(
                exact(tables, regime), tables[:, 0].sum(dim=-1), rtol=REL, atol=0
            )


@pytest.mark.parametrize("steps", [10**5, 10**7, 10**12])
def test_many_steps_are_the_any_order_limit(steps):
    """Two of n positions share a step with probability below c = n (n - 1) / 2T.

    So p_T lies between (1 - c) p and p + c * max p(x | steps), but for rounding.
    """
    size = 4
    table = oracles.random_table(seed=5, size=size)
    limit = exact_log_likelihood(tensor(table)).item()
    best = max(float(score) for score in oracles.scores(table, oracles.assignments(size, 4)))
    collision = size * (size - 1) / 2 / steps
    rounding = 1e-13 * math.log(steps) * size
    value = exact_log_likelihood(tensor(table), steps).item()
    assert value >= limit + math.log1p(-collision) - rounding
    assert value <= limit + math.log1p(collision * math.exp(best - limit)) + rounding


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("steps", [None, 1, 3, EqualChunks(2)])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 2), (0,), (2, 0)])
def test_leading_axes_are_a_loop(size, steps, shape):
    tables = random_tables(*shape, size=size)
    for exact in (exact_log_likelihood, exact_elbo, lambda t, s: exact_cubo(t, 2.0, s)):
        together = exact(tables, steps)
        assert together.shape == shape
        rows = tables.view(-1, 2**size, size)
        for value, row in zip(together.flatten(), rows, strict=True):
            torch.testing.assert_close(value, exact(row, steps), rtol=REL, atol=0)


@pytest.mark.parametrize("max_elements", [1, 100, 700])
def test_slices_change_nothing(monkeypatch, max_elements):
    tables = random_tables(7, 3, size=4)
    regimes = [None, 2, 5, EqualChunks(2)]
    want = exact_log_likelihoods(tables, regimes)
    monkeypatch.setattr("tube_lightning.lattice.exact._MAX_ELEMENTS", max_elements)
    torch.testing.assert_close(exact_log_likelihoods(tables, regimes), want, rtol=REL, atol=0)


def test_float32_tables_are_read_exactly():
    tables = random_tables(2, size=4).float()
    for steps in (None, 3, EqualChunks(2)):
        assert torch.equal(
            exact_log_likelihood(tables, steps), exact_log_likelihood(tables.double(), steps)
        )


def test_tables_are_not_changed():
    tables = random_tables(2, size=3)
    before = tables.clone()
    exact_log_likelihoods(tables, [None, 2])
    exact_elbo(tables, 2)
    exact_cubo(tables, 2.0)
    torch.testing.assert_close(tables, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("size", "steps"),
    [(16, None), (16, EqualChunks(4)), (12, 1), (12, 3), (12, 100), (10, EqualChunks(3))],
)
def test_context_free_model_has_one_value(size, steps):
    """A model that ignores what is revealed gives the sum of its terms in every regime."""
    table, log_p = oracles.order_free_table(7, size)
    assert exact_log_likelihood(tensor(table), steps).item() == pytest.approx(log_p, rel=REL)
    assert exact_elbo(tensor(table), steps).item() == pytest.approx(log_p, rel=REL)
    assert exact_cubo(tensor(table), 2.0, steps).item() == pytest.approx(log_p, rel=REL)


@pytest.mark.parametrize("size", [5, 16])
def test_consistent_model_has_one_value(size):
    """Conditionals of one joint give its probability in every order."""
    table, log_p = oracles.consistent_table(8, size)
    assert exact_log_likelihood(tensor(table)).item() == pytest.approx(log_p, rel=REL)
    assert exact_elbo(tensor(table)).item() == pytest.approx(log_p, rel=REL)
    assert exact_cubo(tensor(table), 3.0).item() == pytest.approx(log_p, rel=REL)
