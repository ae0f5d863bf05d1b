"""What the report measures of a regime: the quantities, and paired differences between them."""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.metrics import (
    EstimatorSettings,
    Quantity,
    exact_quantities,
    sampled_quantities,
    surrogate_tube,
)
from tube_lightning.report.views import ARM, ARM_FT, RegimeView
from tube_lightning.score_files import RegimeScores

Read = Callable[[RegimeScores], Float64[Tensor, "batch blocks"]]
EXACT, ELBO_K = "exact", "elbo_k"


def reported_quantities(regime: RegimeView, settings: EstimatorSettings) -> list[Quantity]:
    """List what can be told of a regime, with the names of ``results.json``."""
    quantities = [
        quantity
        for quantity, there in zip(
            exact_quantities(), (regime.exact, regime.exact_elbo), strict=True
        )
        if there is not None
    ]
    sampled = sampled_quantities(regime.scores.shape[-1], settings)
    quantities += sampled if regime.reseeded is None else _of_the_bank(regime, sampled)
    return quantities + [surrogate_tube(name) for name in regime.log_psi or {}]


def _of_the_bank(regime: RegimeView, sampled: tuple[Quantity, ...]) -> list[Quantity]:
    """Replace what the paper's protocol re-seeds by the mean over re-seeds.

    ELBO_K has the whole bank, once. The ELBO is the continuous-time one, where there is one.
    """
    quantities = []
    for quantity in sampled:
        if quantity.name == "elbo":
            if regime.continuous_elbo is None:
                continue
            quantity = _renamed(quantity, "elbo", lambda r: _there(r.continuous_elbo).mean(dim=-1))
        elif quantity.name != ELBO_K:
            quantity = _renamed(quantity, quantity.name, _mean_reseed(quantity.name))
        quantities.append(quantity)
    return quantities


def _renamed(quantity: Quantity, name: str, read: Read) -> Quantity:
    return Quantity(name, read, quantity.side, quantity.bound_preserving)


def _mean_reseed(name: str) -> Read:
    return lambda regime: _reseeds(regime, name).mean(dim=0)


def _one_reseed(name: str, number: int) -> Read:
    return lambda regime: _reseeds(regime, name)[number]


def _one_elbo_seed(number: int) -> Read:
    return lambda regime: _there(regime.continuous_elbo)[..., number]


def repetitions(regime: RegimeView, quantities: list[Quantity]) -> dict[str, list[Quantity]]:
    """List each re-seed of what is re-seeded, by the name of the whole."""
    if regime.reseeded is None:
        return {}
    repeated = {}
    for quantity in quantities:
        name = quantity.name
        if name in regime.reseeded:
            reads = [_one_reseed(name, r) for r in range(len(regime.reseeded[name]))]
        elif name == "elbo":
            reads = [_one_elbo_seed(s) for s in range(_there(regime.continuous_elbo).shape[-1])]
        else:
            continue
        repeated[name] = [_renamed(quantity, f"{name}@{n}", read) for n, read in enumerate(reads)]
    return repeated


def arm_quantities(regime: RegimeView) -> list[Quantity]:
    """List the autoregressive models: exact, and the same in every regime."""

    def reads(name: str) -> Read:
        return lambda view: _view(view).arms[name]

    return [
        Quantity(name, reads(name), None, True) for name in (ARM, ARM_FT) if name in regime.arms
    ]


def difference_name(quantity: str, reference: str) -> str:
    """Name a paired difference."""
    return f"{quantity}_minus_{reference}"


def paired_differences(quantities: list[Quantity]) -> list[Quantity]:
    """List the differences whose errors judge the bounds and the ARM.

    Sequences are shared, so the error of a difference is far below that of its parts.
    """
    named = {quantity.name: quantity for quantity in quantities}
    references = [named[name] for name in (EXACT, ELBO_K, ARM) if name in named]
    return [
        paired_difference(quantity, reference)
        for reference in references
        for quantity in quantities
        if quantity.bound_preserving and quantity.name not in (reference.name, ARM, ARM_FT)
    ]


def paired_difference(quantity: Quantity, reference: Quantity) -> Quantity:
    """Subtract block by block: the error over sequences is then that of the difference."""

    def read(regime: RegimeScores) -> Float64[Tensor, "batch blocks"]:
        ours, theirs = quantity.values(regime), reference.values(regime)
        return torch.where(ours == theirs, 0.0, ours - theirs)  # also where both are infinite

    return Quantity(difference_name(quantity.name, reference.name), read, None, True)


def _view(regime: RegimeScores) -> RegimeView:
    if not isinstance(regime, RegimeView):
        raise TypeError(f"regime: expected a RegimeView, got {type(regime).__name__}")
    return regime


def _reseeds(regime: RegimeScores, name: str) -> Float64[Tensor, "reseeds batch blocks"]:
    reseeded = _view(regime).reseeded
    if reseeded is None:
        raise ValueError(f"{name}: expected re-seeds, got fresh orderings")
    return reseeded[name]


def _there(values: Tensor | None) -> Tensor:
    if values is None:
        raise ValueError("continuous_elbo: expected values for every block, got none in the scores")
    return values
