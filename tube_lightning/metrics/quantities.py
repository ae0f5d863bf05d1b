"""What is reported of a regime, by name: how it is read off the scores, and what it guarantees."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.bounds import (
    Estimator,
    Side,
    TangentTerms,
    cubo,
    elbo,
    elbo_k,
    isvgb,
    tube,
    tube_loo,
    tube_loo_terms,
    tube_split,
    tube_split_terms,
    tube_terms,
    tvo_upper,
)
from tube_lightning.checks import check_whole_number
from tube_lightning.score_files import RegimeScores


@dataclass(frozen=True)
class EstimatorSettings:
    """What the competing estimators leave open. The defaults are the paper's."""

    cubo_beta: float = 2.0
    tvo_partitions: int = 200
    isvgb_pairs: int = 2

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, before anything is scored."""
        beta = self.cubo_beta
        if type(beta) not in (int, float) or not 1 <= beta < math.inf:
            raise ValueError(f"cubo_beta: expected a number of at least 1, got {beta!r}")
        for name in ("tvo_partitions", "isvgb_pairs"):
            check_whole_number(name, getattr(self, name), least=1)


@dataclass(frozen=True)
class Quantity:
    """A value for every block, as a function of its scores.

    ``read`` gives it in nats, or in the two parts of a tangent bound. ``side`` is None for what is
    no bound: an exact likelihood. ``bound_preserving`` says whether the expectation keeps to the
    side.
    """

    name: str
    read: Callable[[RegimeScores], Float64[Tensor, "batch blocks"] | TangentTerms]
    side: Side | None
    bound_preserving: bool

    def values(self, regime: RegimeScores) -> Float64[Tensor, "batch blocks"]:
        """Evaluate block by block, in nats."""
        terms = self.read(regime)
        if isinstance(terms, TangentTerms):
            return terms.log_psi + torch.expm1(terms.log_ratio)
        return terms


def _bound(
    name: str,
    estimator: Estimator[..., Tensor],
    read: Callable[[RegimeScores], Tensor | TangentTerms],
) -> Quantity:
    return Quantity(name, read, estimator.side, estimator.bound_preserving)


def sampled_quantities(
    num_orderings: int, settings: EstimatorSettings | None = None
) -> tuple[Quantity, ...]:
    """List the estimators that so many sampled orderings allow.

    TUBE needs two, and IS-VG-B a multiple of 2 ``isvgb_pairs``.
    """
    chosen = settings or EstimatorSettings()
    pairs = chosen.isvgb_pairs
    bounds: list[Quantity] = []
    if num_orderings >= 1:
        bounds += [
            _bound("elbo", elbo, lambda regime: elbo(regime.scores)),
            _bound("elbo_k", elbo_k, lambda regime: elbo_k(regime.scores)),
            _bound("cubo", cubo, lambda regime: cubo(regime.scores, chosen.cubo_beta)),
            _bound("tvo", tvo_upper, lambda r: tvo_upper(r.scores, chosen.tvo_partitions)),
        ]
    if num_orderings >= 2:
        bounds += [
            _bound("tube", tube_loo, lambda regime: tube_loo_terms(regime.scores)),
            _bound("tube_split", tube_split, lambda regime: tube_split_terms(regime.scores)),
        ]
    if num_orderings >= 2 * pairs and num_orderings % (2 * pairs) == 0:
        bounds.append(_bound("isvgb", isvgb, lambda regime: isvgb(regime.scores, pairs)))
    return tuple(bounds)


def exact_quantities() -> tuple[Quantity, ...]:
    """List what the lattice gives without sampling: log p(x), and the ELBO's expectation."""
    return (
        Quantity("exact", lambda regime: _there("exact", regime.exact), None, True),
        Quantity(
            "elbo_exact", lambda regime: _there("exact_elbo", regime.exact_elbo), "lower", True
        ),
    )


def arm_likelihood(surrogate: str = "arm") -> Quantity:
    """Read the exact likelihood of an autoregressive model."""
    return Quantity(surrogate, lambda regime: _log_psi(regime, surrogate), None, True)


def surrogate_tube(surrogate: str) -> Quantity:
    """Take TUBE at a surrogate that does not depend on the orderings: all of them make p_hat."""
    return _bound(
        f"tube_psi_{surrogate}",
        tube,
        lambda regime: tube_terms(regime.scores, _log_psi(regime, surrogate)),
    )


def _log_psi(regime: RegimeScores, surrogate: str) -> Float64[Tensor, "batch blocks"]:
    known = regime.log_psi or {}
    if surrogate not in known:
        raise ValueError(f"surrogate: expected one of {sorted(known)}, got {surrogate!r}")
    return known[surrogate]


def _there(
    name: str, values: Float64[Tensor, "batch blocks"] | None
) -> Float64[Tensor, "batch blocks"]:
    if values is None:
        raise ValueError(f"{name}: expected values for every block, got none in the scores")
    return values
