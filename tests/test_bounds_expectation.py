"""Guarantees in expectation, by enumerating every tuple of iid orders: no sampling, no luck."""

import itertools
import math

import oracles
import pytest
import torch

from tube_lightning.bounds import (
    cubo,
    elbo,
    elbo_k,
    isvgb,
    tube,
    tube_kfold,
    tube_loo,
    tube_split,
    tvo_upper,
)

ROUNDING = 1e-12  # the scores are a few nats, the expectations sums of at most 6**4 of them


def order_scores(seed):
    """Return log p(x | order) of the six orders of a random block of three."""
    table = oracles.random_table(seed, size=3)
    scores = [float(score) for score in oracles.scores(table, oracles.orders(3))]
    return torch.tensor(scores, dtype=torch.float64)


def tuples(scores, num_orderings):
    """List all equally likely draws of ``num_orderings`` iid orders: [6**K, K]."""
    return torch.tensor(
        list(itertools.product(scores.tolist(), repeat=num_orderings)), dtype=torch.float64
    )


def log_p(scores):
    return math.log(math.fsum(math.exp(s) for s in scores.tolist()) / len(scores))


seeds = pytest.mark.parametrize("seed", range(5))


@seeds
@pytest.mark.parametrize("num_orderings", [1, 2, 3, 4])
def test_elbos_are_below(seed, num_orderings):
    scores = order_scores(seed)
    draws = tuples(scores, num_orderings)
    exact = log_p(scores)
    assert elbo(draws).mean().item() == pytest.approx(math.fsum(scores.tolist()) / 6, abs=ROUNDING)
    assert elbo(draws).mean() < exact
    assert elbo_k(draws).mean() < exact


@seeds
def test_elbo_k_grows_with_k(seed):
    scores = order_scores(seed)
    values = [elbo_k(tuples(scores, k)).mean().item() for k in (1, 2, 3, 4)]
    assert values[0] == pytest.approx(elbo(scores).item(), abs=ROUNDING)
    assert values == sorted(values)
    assert len(set(values)) == 4


@seeds
@pytest.mark.parametrize("num_orderings", [1, 2, 3])
@pytest.mark.parametrize("offset", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_tube_proposition(seed, num_orderings, offset):
    """Unbiased for log psi + p/psi - 1, with variance Var[p] / (K psi^2)."""
    scores = order_scores(seed)
    exact = log_p(scores)
    log_psi = exact + offset
    values = tube(tuples(scores, num_orderings), torch.tensor(log_psi, dtype=torch.float64))

    ratios = [math.exp(s - log_psi) for s in scores.tolist()]
    mean_ratio = math.fsum(ratios) / 6
    variance = math.fsum((r - mean_ratio) ** 2 for r in ratios) / 6 / num_orderings
    assert values.mean().item() == pytest.approx(log_psi + mean_ratio - 1, abs=ROUNDING * 20)
    assert values.var(correction=0).item() == pytest.approx(variance, rel=1e-11)
    if offset:
        assert values.mean() > exact
    else:
        assert values.mean().item() == pytest.approx(exact, abs=ROUNDING)


@seeds
@pytest.mark.parametrize(
    ("bound", "num_orderings"),
    [
        (tube_split, 2),
        (tube_split, 3),
        (tube_split, 4),
        (lambda scores: tube_kfold(scores, folds=2), 2),
        (lambda scores: tube_kfold(scores, folds=3), 3),
        (lambda scores: tube_kfold(scores, folds=2), 4),
        (tube_loo, 2),
        (tube_loo, 3),
        (tube_loo, 4),
    ],
)
def test_tubes_of_the_draws_are_above(seed, bound, num_orderings):
    scores = order_scores(seed)
    assert bound(tuples(scores, num_orderings)).mean() > log_p(scores)


@seeds
def test_more_folds_are_tighter(seed):
    draws = tuples(order_scores(seed), 4)
    split, two_folds, loo = tube_split(draws), tube_kfold(draws, folds=2), tube_loo(draws)
    assert two_folds.mean().item() == pytest.approx(split.mean().item(), rel=1e-12)
    assert loo.mean() < two_folds.mean()
    assert two_folds.var() < split.var()


@seeds
def test_halves_of_a_shuffled_enumeration_are_above(seed):
    """Every order once, half of them psi: dependent halves, and still an upper bound."""
    scores = order_scores(seed)
    shuffles = torch.tensor(list(itertools.permutations(scores.tolist())), dtype=torch.float64)
    assert tube_split(shuffles).mean() > log_p(scores)
    assert tube_loo(shuffles).mean() > log_p(scores)


SKEWED = torch.tensor([0.6, 0.02, 0.02, 0.02, 0.02, 0.02], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("bound", "num_orderings"),
    [
        (cubo, 1),
        (cubo, 2),
        (tvo_upper, 1),
        (tvo_upper, 2),
        (tvo_upper, 3),
        (lambda scores: isvgb(scores, pairs=1), 2),
        (lambda scores: isvgb(scores, pairs=1), 4),
    ],
)
def test_upper_estimators_that_do_not_preserve_their_bound(bound, num_orderings):
    """One order in six carries the block: their expectation is *below* log p, TUBE's is not."""
    assert bound(tuples(SKEWED, num_orderings)).mean() < log_p(SKEWED) - 0.05
    if num_orderings > 1:
        assert tube_loo(tuples(SKEWED, num_orderings)).mean() > log_p(SKEWED)


@pytest.mark.parametrize("bound", [cubo, tvo_upper])
def test_their_population_values_are_above(bound):
    assert bound(SKEWED) > log_p(SKEWED)
