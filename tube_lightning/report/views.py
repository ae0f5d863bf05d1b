"""Scores as the report reads them: with the ARM beside every regime, and the re-seeds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.metrics import EstimatorSettings
from tube_lightning.report.resampling import resampled, reseeded_values, shuffled
from tube_lightning.score_files import BlockScores, RegimeScores

ARM, ARM_FT = "arm", "arm_ft"


@dataclass(frozen=True)
class Reseeding:
    """How the bank of the paper's protocol is resampled."""

    seed: int
    num_reseeds: int


@dataclass(frozen=True, eq=False)
class RegimeView(RegimeScores):
    """A regime with what the report compares it with."""

    arms: Mapping[str, Float64[Tensor, "batch blocks"]] = field(default_factory=dict)
    """log p(x) of the autoregressive models, arm and arm_ft"""
    reseeded: Mapping[str, Float64[Tensor, "reseeds batch blocks"]] | None = None
    """what the paper's protocol estimates again and again; None for fresh orderings"""


@dataclass(frozen=True, eq=False)
class BatchView:
    """Some sequences under every regime."""

    sequences: Int64[Tensor, " batch"]
    num_tokens: Int64[Tensor, "batch blocks"]
    regimes: Mapping[str, RegimeView]
    seconds: float


def reported_views(
    parts: Iterable[BlockScores], settings: EstimatorSettings, reseeding: Reseeding | None
) -> Iterator[BatchView]:
    """Show part after part; a bank is resampled if ``reseeding`` says how."""
    for part in parts:
        arms = _arms(part)
        reseeded = _reseeded(part, settings, reseeding) if reseeding else {}
        regimes = {
            name: RegimeView(**vars(regime), arms=arms, reseeded=reseeded.get(name))
            for name, regime in part.regimes.items()
        }
        yield BatchView(part.sequences, part.num_tokens, regimes, part.seconds)


def shuffled_views(
    parts: Iterable[BlockScores], reseeding: Reseeding | None
) -> Iterator[BatchView]:
    """Show part after part; a bank, which may be sorted, in a random order for each block.

    Any first half of the orderings is then independent of its second half, or nearly.
    """
    for part in parts:
        arms = _arms(part)
        regimes = {}
        for name, regime in part.regimes.items():
            fields = dict(vars(regime))
            if reseeding:
                order = shuffled(
                    regime.scores.shape[-1],
                    reseeding.seed,
                    part.sequences.tolist(),
                    blocks=part.num_tokens.shape[1],
                    num_reseeds=reseeding.num_reseeds,
                )
                fields["scores"] = regime.scores.gather(-1, order)
            regimes[name] = RegimeView(**fields, arms=arms)
        yield BatchView(part.sequences, part.num_tokens, regimes, part.seconds)


def _arms(part: BlockScores) -> dict[str, Float64[Tensor, "batch blocks"]]:
    """Find the autoregressive models, in whichever regime they are."""
    found: dict[str, Tensor] = {}
    for regime in part.regimes.values():
        found = {k: v for k, v in (regime.log_psi or {}).items() if k in (ARM, ARM_FT)} | found
    return found


def _reseeded(
    part: BlockScores, settings: EstimatorSettings, reseeding: Reseeding
) -> dict[str, dict[str, Float64[Tensor, "reseeds batch blocks"]]]:
    """Resample every regime by the same places of the bank."""
    first = next(iter(part.regimes.values()))
    places = resampled(
        first.scores.shape[-1],
        reseeding.seed,
        part.sequences.tolist(),
        blocks=part.num_tokens.shape[1],
        num_reseeds=reseeding.num_reseeds,
    )
    return {
        name: reseeded_values(regime.scores, places, settings)
        for name, regime in part.regimes.items()
    }
