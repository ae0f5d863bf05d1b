"""Laws that hold draw by draw, over block sizes, numbers of orderings and dtypes.

Scores lie on a grid of 1/64 nat, so that shifting them and storing them in float32 is exact and
what is left is the rounding of the estimators themselves.
"""

import itertools
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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

GRID = 64  # steps a nat
EPS = torch.finfo(torch.float64).eps

law = settings(max_examples=50, deadline=None, derandomize=True)


@st.composite
def score_tensors(draw, min_orderings=2, zeros=False):
    """Draw scores of one block: sums over its tokens, each of 0 to 8 nats; some perhaps -inf."""
    block_size = draw(st.sampled_from([1, 3, 4, 8]))
    num_orderings = draw(st.integers(min_orderings, 12))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    steps = st.integers(-8 * GRID * block_size, 0).map(lambda step: step / GRID)
    element = st.one_of(steps, steps, steps, st.just(-math.inf)) if zeros else steps
    scores = draw(st.lists(element, min_size=num_orderings, max_size=num_orderings))
    return torch.tensor(scores, dtype=dtype)


def estimators(num_orderings):
    """List the estimators of K scores: name, function, sizes of the groups they average."""
    everything = [num_orderings]
    half = num_orderings // 2
    yield "elbo", elbo, everything
    yield "elbo_k", elbo_k, everything
    for beta in (1.0, 2.0, 5.0):
        yield f"cubo {beta}", partial(cubo, beta=beta), everything
    for partitions in (1, 7):
        yield f"tvo {partitions}", partial(tvo_upper, partitions=partitions), everything
    yield "loo", tube_loo, everything
    yield "split", tube_split, [half, num_orderings - half]
    for folds in range(2, num_orderings + 1):
        if num_orderings % folds == 0:
            sizes = [num_orderings // folds] * folds
            yield f"kfold {folds}", partial(tube_kfold, folds=folds), sizes
    for pairs in range(1, half + 1):
        if num_orderings % (2 * pairs) == 0:
            sizes = [num_orderings // (2 * pairs)] * (2 * pairs)
            yield f"isvgb {pairs}", partial(isvgb, pairs=pairs), sizes


def rounding(scores, value=-math.inf, shift=0.0):
    """Bound the rounding error of an estimator's ``value`` in nats.

    A log-sum-exp over K terms is good to some K ulps of the largest score (shifted or not); here
    4 K, as two are compared. What follows multiplies that by at most 1 + spread (the tilted means
    of TVO) or by the mean ratio p_hat / psi (TUBE), which is below 1 + value - (lowest score).
    """
    scores = scores.double()[scores > -math.inf]
    if not scores.numel():
        return 0.0
    lowest, highest = scores.min().item(), scores.max().item()
    condition = 2 + (max(highest, value) - lowest)
    magnitude = max(1.0, scores.abs().max().item() + abs(shift))
    return 4 * len(scores) * EPS * magnitude * condition


@law
@given(score_tensors(), st.integers(-1000 * GRID, 1000 * GRID))
def test_shifting_the_scores_shifts_the_value(scores, step):
    shift = step / GRID
    for name, estimate, _ in estimators(len(scores)):
        value = estimate(scores).item()
        tolerance = rounding(scores, value, shift)
        assert estimate(scores + shift).item() == pytest.approx(value + shift, abs=tolerance), name


@law
@given(score_tensors(), st.integers(-1000 * GRID, 1000 * GRID), st.integers(-10 * GRID, 10 * GRID))
def test_shifting_scores_and_surrogate_shifts_tube(scores, step, offset):
    shift = step / GRID
    log_psi = scores.max() + offset / GRID
    value = tube(scores, log_psi).item()
    tolerance = rounding(torch.cat([scores, log_psi[None]]), value, shift)
    moved = tube(scores + shift, log_psi + shift).item()
    assert moved == pytest.approx(value + shift, abs=tolerance)


@law
@given(score_tensors(), st.randoms(use_true_random=False))
def test_permuting_within_a_group_changes_nothing(scores, rng):
    for name, estimate, sizes in estimators(len(scores)):
        order = []
        for size in sizes:
            order += [len(order) + slot for slot in rng.sample(range(size), size)]
        value = estimate(scores).item()
        permuted = estimate(scores[order]).item()
        assert permuted == pytest.approx(value, abs=rounding(scores, value)), name


@law
@given(score_tensors(zeros=True))
def test_upper_ones_are_above_elbo_k_of_the_same_draws(scores):
    lower = elbo_k(scores).item()
    for name, estimate, _ in estimators(len(scores)):
        if name.startswith(("loo", "kfold", "tvo", "cubo")):
            value = estimate(scores).item()
            assert value >= lower - rounding(scores), name


@law
@given(score_tensors(min_orderings=1, zeros=True))
def test_elbo_is_below_elbo_k(scores):
    assert elbo(scores).item() <= elbo_k(scores).item() + rounding(scores)


@law
@given(
    score_tensors(min_orderings=1, zeros=True),
    st.lists(st.floats(1.0, 50.0), min_size=2, max_size=5),
)
def test_cubo_grows_with_beta(scores, betas):
    values = [cubo(scores, beta).item() for beta in sorted(betas)]
    for low, high in itertools.pairwise(values):
        assert high >= low - rounding(scores)
    assert cubo(scores, 1.0).item() == pytest.approx(elbo_k(scores).item(), abs=rounding(scores))


@law
@given(st.integers(2, 12), st.integers(-1000 * GRID, 0), st.sampled_from(["float32", "float64"]))
def test_all_are_equal_for_an_order_free_model(num_orderings, step, dtype):
    score = step / GRID
    scores = torch.full((num_orderings,), score, dtype=getattr(torch, dtype))
    for name, estimate, _ in estimators(num_orderings):
        assert estimate(scores).item() == pytest.approx(score, abs=rounding(scores)), name
    assert tube(scores, scores[0]).item() == pytest.approx(score, abs=rounding(scores))


@law
@given(st.lists(score_tensors(zeros=True), min_size=6, max_size=6))
def test_leading_axes_are_a_loop(blocks):
    num_orderings = min(len(scores) for scores in blocks)
    rows = torch.stack([scores[:num_orderings].double() for scores in blocks])
    for name, estimate, _ in estimators(num_orderings):
        together = estimate(rows.view(3, 2, num_orderings))
        assert together.shape == (3, 2), name
        for value, row in zip(together.flatten().tolist(), rows, strict=True):
            alone = estimate(row).item()
            assert value == pytest.approx(alone, abs=rounding(row, alone)), name


@law
@given(score_tensors(zeros=True))
def test_values_are_float64_whatever_the_scores(scores):
    for name, estimate, _ in estimators(len(scores)):
        value = estimate(scores)
        assert value.dtype == torch.float64, name
        assert torch.equal(value, estimate(scores.double())), name


def test_tube_broadcasts_the_surrogate():
    scores = torch.tensor([[-1.0, -2.0, -4.0], [-3.0, -3.0, -5.0]])
    log_psi = torch.tensor([-1.5, -2.5, -3.5, -4.5])
    values = tube(scores[:, None, :], log_psi)
    assert values.shape == (2, 4)
    for row, block in zip(values, scores, strict=True):
        for value, psi in zip(row, log_psi, strict=True):
            assert value.item() == pytest.approx(tube(block, psi).item(), rel=1e-15)
