"""Invalid input is a ValueError that names the value; guarantees are data."""

import inspect
import math

import jaxtyping
import pytest
import torch

from tube_lightning import bounds
from tube_lightning.bounds import (
    Bound,
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

CALLS = {
    "elbo": elbo,
    "elbo_k": elbo_k,
    "tube": lambda scores: tube(scores, torch.tensor(-1.0)),
    "tube_split": tube_split,
    "tube_kfold": lambda scores: tube_kfold(scores, folds=2),
    "tube_loo": tube_loo,
    "cubo": cubo,
    "tvo_upper": tvo_upper,
    "isvgb": lambda scores: isvgb(scores, pairs=1),
}

every_estimator = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture
def _as_at_run_time():
    """Turn off the shape checks of the test suite, which would answer first."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@every_estimator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_a_log_density(call, value, dtype):
    scores = torch.full((2, 3, 4), -1.0, dtype=dtype)
    scores[1, 2, 3] = value
    with pytest.raises(ValueError, match=rf"^scores: .* got {value} at index \(1, 2, 3\)$"):
        call(scores)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_surrogate_not_a_log_density(value):
    log_psi = torch.tensor([-1.0, value])
    with pytest.raises(ValueError, match=rf"^log_psi: .* got {value} at index \(1,\)$"):
        tube(torch.full((2, 3), -1.0), log_psi)


@every_estimator
def test_no_orderings(call):
    with pytest.raises(ValueError, match=r"^scores: .* got shape \(2, 0\)$"):
        call(torch.zeros(2, 0))


@every_estimator
@pytest.mark.usefixtures("_as_at_run_time")
def test_no_axis(call):
    with pytest.raises(ValueError, match=r"^scores: .* got shape \(\)$"):
        call(torch.tensor(-1.0))


@every_estimator
@pytest.mark.usefixtures("_as_at_run_time")
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_not_floating_point(call, dtype):
    with pytest.raises(ValueError, match=rf"^scores: .* got {dtype}$"):
        call(torch.zeros(4, dtype=dtype))


@pytest.mark.parametrize("name", ["tube_split", "tube_kfold", "tube_loo", "isvgb"])
def test_one_ordering_cannot_be_split(name):
    with pytest.raises(ValueError, match=r"^scores: expected at least 2 .* got shape \(3, 1\)$"):
        CALLS[name](torch.zeros(3, 1))


@pytest.mark.parametrize("folds", [-2, 0, 1, 4, 5, 7, 12])
def test_folds_must_divide(folds):
    with pytest.raises(ValueError, match=rf"^folds: .* 6 orderings .* got {folds}$"):
        tube_kfold(torch.zeros(6), folds=folds)


@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.999, math.inf, math.nan])
def test_beta_must_be_at_least_one(beta):
    with pytest.raises(ValueError, match=rf"^beta: .* got {beta}$"):
        cubo(torch.zeros(3), beta=beta)


@pytest.mark.parametrize("partitions", [-1, 0])
def test_partitions_must_be_positive(partitions):
    with pytest.raises(ValueError, match=rf"^partitions: .* got {partitions}$"):
        tvo_upper(torch.zeros(3), partitions=partitions)


@pytest.mark.parametrize("pairs", [-1, 0, 2, 4, 6])
def test_pairs_must_divide(pairs):
    with pytest.raises(ValueError, match=rf"^pairs: .* 6 orderings, got {pairs}$"):
        isvgb(torch.zeros(6), pairs=pairs)


def test_inputs_are_not_changed():
    scores = torch.tensor([-1.0, -math.inf, -3.0, -4.0], dtype=torch.float64)
    for call in CALLS.values():
        before = scores.clone()
        call(scores)
        assert torch.equal(scores, before)


@pytest.mark.parametrize(
    ("name", "side", "bound_preserving"),
    [
        ("elbo", "lower", True),
        ("elbo_k", "lower", True),
        ("tube", "upper", True),
        ("tube_split", "upper", True),
        ("tube_kfold", "upper", True),
        ("tube_loo", "upper", True),
        ("cubo", "upper", False),
        ("tvo_upper", "upper", False),
        ("isvgb", "upper", False),
    ],
)
def test_guarantees_are_data(name, side, bound_preserving):
    estimator = getattr(bounds, name)
    assert isinstance(estimator, Bound)
    assert (estimator.side, estimator.bound_preserving) == (side, bound_preserving)
    assert estimator.__name__ == name
    assert "Guarantee:" in estimator.__doc__
    assert "Reference:" in estimator.__doc__


@pytest.mark.parametrize("bound", [tube, tube_split, tube_kfold, tube_loo])
def test_signatures_tell_what_a_call_returns(bound):
    """The value, as help() shows it; the parts are what ``terms`` returns."""
    assert inspect.signature(bound).return_annotation is torch.Tensor
    assert next(iter(inspect.signature(bound).parameters)) == "scores"
