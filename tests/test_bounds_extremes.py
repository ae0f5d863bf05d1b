"""Estimators at the ends of the number line, against oracles in decimals of 60 digits."""

import itertools
import math
from functools import partial

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
from tube_lightning.bounds.logspace import exclusive_logsumexp

INF = math.inf
EPS = torch.finfo(torch.float64).eps

PAIRS = {  # name: ours, the oracle
    "elbo": (elbo, oracles.elbo),
    "elbo_k": (elbo_k, oracles.elbo_k),
    "split": (tube_split, oracles.tube_split),
    "two folds": (partial(tube_kfold, folds=2), partial(oracles.tube_kfold, folds=2)),
    "three folds": (partial(tube_kfold, folds=3), partial(oracles.tube_kfold, folds=3)),
    "loo": (tube_loo, oracles.tube_loo),
    "cubo": (partial(cubo, beta=2.5), partial(oracles.cubo, beta=2.5)),
    "tvo": (partial(tvo_upper, partitions=10), partial(oracles.tvo_upper, partitions=10)),
    "isvgb 1": (partial(isvgb, pairs=1), partial(oracles.isvgb, pairs=1)),
    "isvgb 3": (partial(isvgb, pairs=3), partial(oracles.isvgb, pairs=3)),
}


def tensor(*scores):
    return torch.tensor(scores, dtype=torch.float64)


def log_error(scores):
    """Bound the error of a log-sum-exp: 2 K ulps of the largest finite score."""
    largest = max(abs(score) for score in scores if score > -INF)
    return 2 * len(scores) * EPS * max(1.0, largest)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    "scores",
    [
        (-1e4, -10001.5, -9998.75, -10003.0, -9999.0, -1e4),
        (-3.0, -1e4, -2.0, -5e3, -2.5, -7e3),
        (-1e4, -3.0, -0.25, -5.0, -2e4, -1.0),
        (-3.0, -2.0, -4.0, -INF, -3.5, -1.0),
        (12.0, 9.5, 11.0, 14.0, 8.0, 12.5),
    ],
    ids=["deep", "spread", "spread low first", "one at -inf", "densities above one"],
)
def test_against_decimals(name, scores):
    """The ratio p_hat / psi multiplies the error of its logarithm: both are in the tolerance."""
    ours, oracle = PAIRS[name]
    want = float(oracle(scores))
    ratio = max(1.0, want - max(scores))
    assert ours(tensor(*scores)).item() == pytest.approx(want, abs=log_error(scores) * ratio)


@pytest.mark.parametrize("lead", [20.0, 36.0, 50.0, 300.0, 700.0])
@pytest.mark.parametrize("base", [-2.0, -5000.0])
@pytest.mark.parametrize("position", [0, 2, 5])
def test_one_ordering_dominates(lead, base, position):
    """Leave-one-out of the dominating ordering is the sum of the others, to the last digits."""
    scores = [base - offset for offset in (0.1, 0.7, 0.0, 1.3, 0.4, 0.2)]
    scores[position] = base + lead
    exclusive = exclusive_logsumexp(tensor(*scores)).tolist()
    for k, value in enumerate(exclusive):
        others = scores[:k] + scores[k + 1 :]
        want = float(sum(oracles.probabilities(others)).ln())
        assert value == pytest.approx(want, abs=log_error(scores))
    for name in ("two folds", "three folds", "loo"):
        ours, oracle = PAIRS[name]
        want = float(oracle(scores))
        ratio = max(1.0, want - base)
        assert ours(tensor(*scores)).item() == pytest.approx(want, abs=log_error(scores) * ratio)


def test_ratios_that_overflow_are_inf():
    assert tube(tensor(0.0, 0.0), tensor(-1e4)[0]).item() == INF
    assert tube_split(tensor(-1e4, 0.0)).item() == INF
    assert tube_loo(tensor(0.0, -800.0)).item() == INF
    assert tube_kfold(tensor(0.0, -1.0, -1e4, -1e4), folds=2).item() == INF


def test_ratios_that_underflow_are_zero():
    assert tube(tensor(-1e4, -1e4), tensor(-2.0)[0]).item() == -3.0
    assert tube_split(tensor(-2.0, -1e4)).item() == -3.0


@pytest.mark.parametrize("name", PAIRS)
def test_never_nan(name):
    """All 6-tuples of four extreme scores, at every surrogate."""
    values = (-INF, -1e4, -745.5, 0.0)
    scores = torch.tensor(list(itertools.product(values, repeat=6)), dtype=torch.float64)
    ours, _ = PAIRS[name]
    assert not ours(scores).isnan().any()
    assert not tube(scores, tensor(*values)[:, None]).isnan().any()


def test_surrogate_of_zero_is_the_limit():
    assert tube(tensor(-1.0, -2.0), tensor(-INF)[0]).item() == INF
    assert tube(tensor(-1.0, -INF), tensor(-INF)[0]).item() == INF
    assert tube(tensor(-INF, -INF), tensor(-INF)[0]).item() == -INF
    assert tube(tensor(-INF, -INF), tensor(-3.0)[0]).item() == -4.0


@pytest.mark.parametrize("name", PAIRS)
def test_all_at_minus_inf(name):
    ours, _ = PAIRS[name]
    assert ours(tensor(*[-INF] * 6)).item() == -INF


def test_one_fold_carries_all_the_probability():
    assert tube_loo(tensor(-INF, -1.0, -INF)).item() == INF
    assert tube_kfold(tensor(-1.0, -2.0, -INF, -INF), folds=2).item() == INF
    assert tube_split(tensor(-INF, -INF, -1.0, -2.0)).item() == INF
    assert tube_split(tensor(-1.0, -1.0, -INF, -INF)).item() == -2.0


def test_one_at_minus_inf_ends_the_elbo_alone():
    scores = tensor(-3.0, -2.0, -INF, -4.0)
    assert elbo(scores).item() == -INF
    for bound in (elbo_k, tube_split, tube_loo, cubo, tvo_upper):
        assert math.isfinite(bound(scores).item())


def test_one_ordering_is_its_score():
    scores = tensor(-7.25)
    for bound in (elbo, elbo_k, cubo, tvo_upper):
        assert bound(scores).item() == -7.25
    assert tube(scores, tensor(-7.25)[0]).item() == -7.25


@pytest.mark.parametrize(
    ("xs", "ys", "limit"),
    [
        ((-INF, -2.0), (-3.0, -1.0), INF),
        ((-2.0, -INF), (-INF, -1.0), INF),
        ((-INF, -2.0), (-INF, -1.0), -INF),
        ((-INF, -2.0), (-INF, -INF), -INF),
        ((-1.0, -2.0), (-INF, -INF), -INF),
        ((-INF, -INF, -2.0), (-INF, -3.0, -1.0), INF),
        ((-INF, -INF), (-3.0, -3.0), -3.0),
        ((-INF, -INF), (-3.0, -INF), -3.0 - math.log(2)),
        ((-INF, -INF), (-INF, -INF), -INF),
        ((-INF,), (-4.0,), -4.0),
    ],
)
def test_variational_gap_limits(xs, ys, limit):
    value = isvgb(tensor(*xs, *ys), pairs=len(xs)).item()
    assert value == pytest.approx(limit, rel=1e-15)


def test_variational_gap_limit_is_that_of_a_common_small_x():
    """As all the X that vanish go to zero together, at X = e^-t."""
    for xs, ys in itertools.product(itertools.product((-INF, -1.0), repeat=2), repeat=2):
        limit = isvgb(tensor(*xs, *ys), pairs=2).item()
        near, nearer = (
            isvgb(tensor(*(max(x, -t) for x in xs), *ys), pairs=2).item() for t in (500.0, 1000.0)
        )
        if math.isinf(limit) and math.isfinite(near):
            assert nearer - near == pytest.approx(math.copysign(250.0, limit), abs=1e-9)
        else:
            assert nearer == pytest.approx(limit, abs=1e-12)
