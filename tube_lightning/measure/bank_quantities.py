"""What is told of banks of orderings: means over banks and re-seeds, and each of them alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import variance

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.bounds import ESTIMATORS, EstimatorSettings
from tube_lightning.measure.banks import BankView
from tube_lightning.metrics import (
    Measured,
    Quantity,
    RateError,
    sampled_quantities,
    surrogate_tubes,
)
from tube_lightning.scores import RegimeView


@dataclass(frozen=True)
class _OfBanks:
    """A quantity that each bank gives; called on a regime, their mean."""

    quantity: Quantity
    """of the scores of one bank"""
    re_seeded: bool

    def __call__(self, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
        """Average over the banks."""
        numbers = range(len(_as_banks(view).banks))
        return torch.stack([self.of_bank(number, view) for number in numbers]).mean(dim=0)

    def of_bank(self, number: int, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
        """Read it off one bank; the mean over its re-seeds, if there are."""
        if self.re_seeded:
            return _as_banks(view).resampled[self.quantity.name][number].mean(dim=0)
        return self.quantity.values(_as_banks(view).banks[number])

    def of_reseed(self, reseed: int, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
        """Average one re-seed over the banks."""
        return _as_banks(view).resampled[self.quantity.name][:, reseed].mean(dim=0)


def bank_quantities(view: BankView, settings: EstimatorSettings) -> list[Quantity]:
    """List the estimators of banks: the mean over re-seeds of what is re-seeded, and over banks.

    ELBO_K has a whole bank, once. The ELBO is the continuous-time one, where there is one.
    """
    quantities = []
    for quantity in sampled_quantities(view.banks[0].regime.scores.shape[-1], settings):
        match ESTIMATORS[quantity.name].on_a_bank:
            case "re-seeded":
                quantities.append(_over_banks(quantity, re_seeded=True))
            case "whole":
                quantities.append(_over_banks(quantity))
            case "continuous" if view.regime.continuous_elbo is not None:
                quantities.append(replace(quantity, read=_read_mean_elbo))
    return [*quantities, *map(_over_banks, surrogate_tubes(view.surrogates))]


def _over_banks(quantity: Quantity, *, re_seeded: bool = False) -> Quantity:
    return replace(quantity, read=_OfBanks(quantity, re_seeded))


def repetitions(view: RegimeView, quantities: Sequence[Quantity]) -> dict[str, list[Quantity]]:
    """List each re-seed of what is re-seeded, and each seed of the ELBO, by the whole's name.

    Fresh orderings have none.
    """
    repeated = {}
    for quantity in quantities:
        name, read = quantity.name, quantity.read
        if isinstance(read, _OfBanks) and read.re_seeded:
            number = _as_banks(view).resampled[name].shape[1]
            reads = [partial(read.of_reseed, reseed) for reseed in range(number)]
        elif read is _read_mean_elbo:
            reads = [partial(_read_one_elbo, s) for s in range(_elbo_seeds(view).shape[-1])]
        else:
            continue
        repeated[name] = [
            replace(quantity, name=f"{name}@{n}", read=r) for n, r in enumerate(reads)
        ]
    return repeated


def single_banks(view: RegimeView, quantities: Sequence[Quantity]) -> dict[str, list[Quantity]]:
    """List what each bank gives, by the name of the whole; one bank alone has no spread."""
    if not isinstance(view, BankView) or len(view.banks) < 2:
        return {}
    return {
        quantity.name: [
            replace(quantity, name=f"{quantity.name}#{n}", read=partial(quantity.read.of_bank, n))
            for n in range(len(view.banks))
        ]
        for quantity in quantities
        if isinstance(quantity.read, _OfBanks)
    }


def widen(value: Measured, of_banks: Sequence[float]) -> Measured:
    """Add the luck of the banks, from the rates of each of them, to the error of the text.

    variance = error^2 + Var(rates) / B, with Satterthwaite's degrees of freedom.
    """
    error, number = value.error, len(of_banks)
    if not all(map(math.isfinite, [error.standard_error, *of_banks])):
        return value._replace(error=RateError.unknown())
    text, luck = error.standard_error**2, variance(of_banks) / number
    if not luck:
        return value
    total = text + luck
    degrees = total**2 / (text**2 / error.degrees + luck**2 / (number - 1))
    fewer = max(1.0, error.effective_sequences * text / total)
    return value._replace(error=RateError(math.sqrt(total), degrees, error.method, fewer))


def _as_banks(view: RegimeView) -> BankView:
    if not isinstance(view, BankView):
        raise TypeError("view: expected a regime of banks, got fresh orderings")
    return view


def _read_mean_elbo(view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return _elbo_seeds(view).mean(dim=-1)


def _read_one_elbo(seed: int, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return _elbo_seeds(view)[..., seed]


def _elbo_seeds(view: RegimeView) -> Float64[Tensor, "batch blocks seeds"]:
    if view.regime.continuous_elbo is None:
        raise ValueError("continuous_elbo: expected values for every block, got none")
    return view.regime.continuous_elbo
