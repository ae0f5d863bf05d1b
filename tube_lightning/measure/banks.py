"""Banks and their re-seeds, the paper's protocol: every block resamples what all blocks share.

For each re-seed a block draws as many orderings as the bank has, with replacement. The estimators
on such draws are about the *bank's mean* of p(x | order), not about p(x): TUBE bounds the former
from above. Only where the bank holds every ordering equally often are the two the same. The
default protocol draws fresh orderings for every block instead; docs/PROTOCOLS.md compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.bounds import ESTIMATORS, EstimatorSettings
from tube_lightning.protocol import Protocol
from tube_lightning.randomness import RESEEDS, SHUFFLES, Stream, uniforms
from tube_lightning.scores import BlockScores, RegimeScores, RegimeView

_WORDS = 4
"""A step of Philox's counter makes so many numbers: blocks begin with whole steps."""


@dataclass(frozen=True, eq=False)
class BankView(RegimeView):
    """A regime, each of its banks alone, and what the estimators give on every resample of them."""

    banks: tuple[RegimeView, ...]
    resampled: Mapping[str, Float64[Tensor, "banks reseeds batch blocks"]]


@dataclass(frozen=True)
class Bank:
    """How the orderings that all blocks share are resampled: ``num_banks`` times as many."""

    seed: int
    num_reseeds: int
    num_banks: int = 1

    @staticmethod
    def of(protocol: Protocol) -> "Bank | None":
        """Tell how a protocol resamples; None if its orderings are fresh."""
        if protocol.draws == "fresh":
            return None
        return Bank(protocol.seed, protocol.num_reseeds, protocol.num_banks)

    def views(self, part: BlockScores, settings: EstimatorSettings) -> dict[str, BankView]:
        """Resample every regime by the same places of the banks."""
        num_orderings = next(iter(part.regimes.values())).scores.shape[-1] // self.num_banks
        places = self.places(part, num_orderings)

        def show(regime: RegimeScores) -> BankView:
            apart = [replace(regime, scores=s) for s in regime.scores.split(num_orderings, dim=-1)]
            resampled = [_resample(b, p, settings) for b, p in zip(apart, places, strict=True)]
            return BankView(
                regime,
                part.arms,
                tuple(RegimeView(bank, part.arms) for bank in apart),
                {name: torch.stack([r[name] for r in resampled]) for name in resampled[0]},
            )

        return {name: show(regime) for name, regime in part.regimes.items()}

    def places(
        self, part: BlockScores, num_orderings: int
    ) -> Int64[Tensor, "banks reseeds batch blocks orderings"]:
        """Draw places of each bank, with replacement, for every re-seed and block."""
        numbers = range(self.num_banks * self.num_reseeds)
        draws = torch.stack([_draw(RESEEDS, self.seed, part, n, num_orderings) for n in numbers])
        drawn = (draws * num_orderings).long()
        return drawn.view(self.num_banks, self.num_reseeds, *drawn.shape[1:])

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
