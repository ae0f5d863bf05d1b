"""What is told of a regime, by name: how it is read off the scores, and what it guarantees."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.bounds import (
    ESTIMATORS,
    EstimatorSettings,
    Side,
    TangentTerms,
    Terms,
    terms_of,
    tube,
)
from tube_lightning.scores import RegimeView

Values = Float64[Tensor, "..."] | Terms
"""Nats of each block, or the terms of a bound whose sums stay in log space."""
EXACT, EXACT_ELBO, ELBO_K = "exact", "elbo_exact", "elbo_k"


@dataclass(frozen=True)
class Quantity:
    """A value for every block, read off the scores of its regime.

    ``side`` is None for what is no bound: an exact likelihood. ``bound_preserving`` says whether
    the expectation keeps to the side.
    """

    name: str
    read: Callable[[RegimeView], Values]
    side: Side | None = None
    bound_preserving: bool = True

    def values(self, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
        """Evaluate block by block, in nats."""
        values = self.read(view)
        if isinstance(values, Tensor):
            return values
        linear, log_ratio = values.averages()
        return linear + torch.expm1(log_ratio)


def sampled_quantities(num_orderings: int, settings: EstimatorSettings) -> tuple[Quantity, ...]:
    """List the estimators that so many sampled orderings allow."""
    return tuple(
        Quantity(
            estimator.name,
            partial(_read_bound, estimator.with_settings(settings)),
            estimator.side,
            estimator.bound_preserving,
        )
        for estimator in ESTIMATORS.values()
        if estimator.fits(num_orderings, settings)
    )


def exact_quantities() -> tuple[Quantity, ...]:
    """List what the lattice gives without sampling: log p(x), and the ELBO's expectation."""
    return (
        Quantity(EXACT, partial(_read_field, "exact")),
        Quantity(EXACT_ELBO, partial(_read_field, "exact_elbo"), "lower"),
    )


def arm_quantities(names: Iterable[str]) -> tuple[Quantity, ...]:
    """List autoregressive models: their likelihoods are exact, the same in every regime."""
    return tuple(Quantity(name, partial(_read_arm, name)) for name in names)


def surrogate_tubes(names: Iterable[str]) -> tuple[Quantity, ...]:
    """List TUBE at surrogates that do not depend on the orderings: all of them make p_hat."""
    return tuple(
        Quantity(f"tube_psi_{name}", partial(_read_tube, name), tube.side, tube.bound_preserving)
        for name in names
    )


def _read_bound(bound: Callable[..., Tensor], view: RegimeView) -> Values:
    values: Values = terms_of(bound)(view.regime.scores)
    return values


def _read_field(name: str, view: RegimeView) -> Values:
    values = getattr(view.regime, name)
    if values is None:
        raise ValueError(f"{name}: expected values for every block, got none in these scores")
    return values  # type: ignore[no-any-return]


def _read_arm(name: str, view: RegimeView) -> Values:
    if name not in view.arms:
        raise ValueError(f"{name}: expected one of {sorted(view.arms)} in these scores")
    return view.arms[name]


def _read_tube(surrogate: str, view: RegimeView) -> TangentTerms:
    known = view.surrogates
    if surrogate not in known:
        raise ValueError(f"surrogate: expected one of {sorted(known)}, got {surrogate!r}")
    return tube.terms(view.regime.scores, known[surrogate])
