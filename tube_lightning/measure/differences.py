"""Paired differences: sequences are shared, so their errors are far below those of the parts."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.measure.ledger import Ledger
from tube_lightning.metrics import ELBO_K, EXACT, Measured, Quantity
from tube_lightning.scores import ARM, ARM_FT, BlockScores, RegimeView


def difference_name(quantity: str, reference: str) -> str:
    """Name a paired difference."""
    return f"{quantity}_minus_{reference}"


def paired_difference(quantity: Quantity, reference: Quantity) -> Quantity:
    """Subtract block by block: the error over sequences is then that of the difference."""
    return Quantity(
        difference_name(quantity.name, reference.name),
        partial(_read_difference, quantity, reference),
    )


def _read_difference(
    quantity: Quantity, reference: Quantity, view: RegimeView
) -> Float64[Tensor, "batch blocks"]:
    ours, theirs = quantity.values(view), reference.values(view)
    return torch.where(ours == theirs, 0.0, ours - theirs)  # also where both are infinite


def judging_differences(quantities: Sequence[Quantity]) -> list[Quantity]:
    """List the differences whose errors judge the bounds and the ARM."""
    named = {quantity.name: quantity for quantity in quantities}
    references = [named[name] for name in (EXACT, ELBO_K, ARM) if name in named]
    return [
        paired_difference(quantity, reference)
        for reference in references
        for quantity in quantities
        if quantity.name not in (reference.name, ARM, ARM_FT)
    ]


def measure_against(
    reference: Quantity,
    quantities: Sequence[Quantity],
    views: Iterable[tuple[RegimeView, BlockScores]],
) -> Mapping[Quantity, Measured]:
    """Measure quantities of one regime, with the errors of their differences from a reference.

    ``views`` show the regime in part after part.
    """
    keys = {f"value_{number}": quantity for number, quantity in enumerate(quantities)}
    pairs = {f"paired_{key}": paired_difference(q, reference) for key, q in keys.items()}
    ledger = Ledger(Quantity(key, quantity.read) for key, quantity in {**keys, **pairs}.items())
    for view, part in views:
        ledger.update(view, part)
    values = ledger.finish()
    return {
        quantity: values[key]._replace(error=values[f"paired_{key}"].error)
        for key, quantity in keys.items()
    }
