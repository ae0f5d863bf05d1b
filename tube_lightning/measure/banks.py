"""Banks and their re-seeds, the paper's protocol: every block resamples what all blocks share.

For each re-seed a block draws as many orderings as the bank has, with replacement. The estimators
on such draws are about the *bank's mean* of p(x | order), not about p(x): TUBE bounds the former
from above. Only where the bank holds every ordering equally often are the two the same. The
default protocol draws fresh orderings for every block instead; docs/PROTOCOLS.md compares the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.bounds import ESTIMATORS, EstimatorSettings
from tube_lightning.metrics import Quantity, sampled_quantities
from tube_lightning.protocol import Protocol
from tube_lightning.randomness import RESEEDS, SHUFFLES, Stream, uniforms
from tube_lightning.scores import BlockScores, RegimeScores, RegimeView

_WORDS = 4
"""A step of Philox's counter makes so many numbers: blocks begin with whole steps."""


@dataclass(frozen=True, eq=False)
class BankView(RegimeView):
    """A regime, and what the estimators give on every resample of its bank."""

    resampled: Mapping[str, Float64[Tensor, "reseeds batch blocks"]]


@dataclass(frozen=True)
class Bank:
    """How the orderings that all blocks share are resampled."""

    seed: int
    num_reseeds: int

    @staticmethod
    def of(protocol: Protocol) -> "Bank | None":
        """Tell how a protocol resamples; None if its orderings are fresh."""
        if protocol.draws == "fresh":
            return None
        return Bank(protocol.seed, protocol.num_reseeds)

    def views(self, part: BlockScores, settings: EstimatorSettings) -> dict[str, BankView]:
        """Resample every regime by the same places of the bank."""
        num_orderings = next(iter(part.regimes.values())).scores.shape[-1]
        places = self.places(part, num_orderings)
        return {
            name: BankView(regime, part.arms, _resample(regime, places, settings))
            for name, regime in part.regimes.items()
        }

    def places(
        self, part: BlockScores, num_orderings: int
    ) -> Int64[Tensor, "reseeds batch blocks orderings"]:
        """Draw places of the bank, with replacement, for every re-seed and block."""
        draws = [_draw(RESEEDS, self.seed, part, n, num_orderings) for n in range(self.num_reseeds)]
        return (torch.stack(draws) * num_orderings).long()

    def shuffle(self, part: BlockScores) -> BlockScores:
        """Put the bank, which may be sorted, into a random order for each block.

        Any first half of the orderings is then independent of its second half, or nearly.
        """

        def shuffled(regime: RegimeScores) -> RegimeScores:
            order = _draw(SHUFFLES, self.seed, part, 0, regime.scores.shape[-1]).argsort(-1)
            return replace(regime, scores=regime.scores.gather(-1, order))

        return replace(part, regimes={name: shuffled(r) for name, r in part.regimes.items()})


def _draw(
    stream: Stream, seed: int, part: BlockScores, place: int, count: int
) -> Float64[Tensor, "batch blocks count"]:
    """Draw u ~ Uniform[0, 1) for every block, as a function of names alone.

    How many blocks there are, and which sequences are together, does not matter.
    """
    blocks, room = part.num_tokens.shape[1], -(-count // _WORDS) * _WORDS
    rows = [
        uniforms(stream, seed, sequence, place, blocks * room).reshape(blocks, room)
        for sequence in part.sequences.tolist()
    ]
    return torch.from_numpy(np.stack(rows)[..., :count].copy())


def _resample(
    regime: RegimeScores,
    places: Int64[Tensor, "reseeds batch blocks orderings"],
    settings: EstimatorSettings,
) -> dict[str, Float64[Tensor, "reseeds batch blocks"]]:
    """Evaluate the estimators that are re-seeded, for every re-seed and block, in nats."""
    return {
        estimator.name: estimator.resampled(regime.scores, places, settings)
        for estimator in ESTIMATORS.values()
        if estimator.on_a_bank == "re-seeded" and estimator.fits(places.shape[-1], settings)
    }


def bank_quantities(view: BankView, settings: EstimatorSettings) -> list[Quantity]:
    """List the estimators of a bank: the mean over re-seeds of what is re-seeded.

    ELBO_K has the whole bank, once. The ELBO is the continuous-time one, where there is one.
    """
    quantities = []
    for quantity in sampled_quantities(view.regime.scores.shape[-1], settings):
        match ESTIMATORS[quantity.name].on_a_bank:
            case "re-seeded":
                quantities.append(replace(quantity, read=partial(_read_mean, quantity.name)))
            case "whole":
                quantities.append(quantity)
            case "continuous" if view.regime.continuous_elbo is not None:
                quantities.append(replace(quantity, read=_read_mean_elbo))
    return quantities


def repetitions(view: RegimeView, quantities: Sequence[Quantity]) -> dict[str, list[Quantity]]:
    """List each re-seed of what is re-seeded, and each seed of the ELBO, by the whole's name.

    Fresh orderings have none.
    """
    if not isinstance(view, BankView):
        return {}
    repeated = {}
    for quantity in quantities:
        name = quantity.name
        if name in view.resampled:
            reads = [partial(_read_one, name, r) for r in range(len(view.resampled[name]))]
        elif quantity.read is _read_mean_elbo:
            reads = [partial(_read_one_elbo, s) for s in range(_elbo_seeds(view).shape[-1])]
        else:
            continue
        repeated[name] = [
            replace(quantity, name=f"{name}@{number}", read=read)
            for number, read in enumerate(reads)
        ]
    return repeated


def _read_mean(name: str, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return _resamples(name, view).mean(dim=0)


def _read_one(name: str, reseed: int, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return _resamples(name, view)[reseed]


def _read_mean_elbo(view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return _elbo_seeds(view).mean(dim=-1)


def _read_one_elbo(seed: int, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return _elbo_seeds(view)[..., seed]


def _resamples(name: str, view: RegimeView) -> Float64[Tensor, "reseeds batch blocks"]:
    if not isinstance(view, BankView):
        raise TypeError(f"{name}: expected a bank with re-seeds, got fresh orderings")
    return view.resampled[name]


def _elbo_seeds(view: RegimeView) -> Float64[Tensor, "batch blocks seeds"]:
    if view.regime.continuous_elbo is None:
        raise ValueError("continuous_elbo: expected values for every block, got none")
    return view.regime.continuous_elbo
