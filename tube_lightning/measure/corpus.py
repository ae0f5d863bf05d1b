"""One pass over the parts: every quantity of every regime, per token, with its error."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure.banks import Bank, BankView, bank_quantities, repetitions
from tube_lightning.measure.differences import judging_differences
from tube_lightning.measure.tails import GapTail, Tail
from tube_lightning.metrics import (
    Measured,
    Quantity,
    arm_quantities,
    corpus_metrics,
    exact_quantities,
    measured,
    sampled_quantities,
    surrogate_tubes,
)
from tube_lightning.protocol import Draws
from tube_lightning.scores import BlockScores, RegimeView


def reported_quantities(view: RegimeView, settings: EstimatorSettings) -> list[Quantity]:
    """List what can be told of a regime, with the names of ``results.json``."""
    regime = view.regime
    there = (regime.exact is not None, regime.exact_elbo is not None)
    exact = [q for q, known in zip(exact_quantities(), there, strict=True) if known]
    sampled = (
        bank_quantities(view, settings)
        if isinstance(view, BankView)
        else sampled_quantities(regime.scores.shape[-1], settings)
    )
    return [*exact, *sampled, *surrogate_tubes(view.surrogates)]


@dataclass(frozen=True)
class RegimeQuantities:
    """What is measured of a regime, chosen by what it has."""

    reported: list[Quantity]
    arms: list[Quantity]
    repeated: dict[str, list[Quantity]]
    """each re-seed of what is re-seeded, by the name of the whole"""

    @staticmethod
    def of(view: RegimeView, settings: EstimatorSettings) -> "RegimeQuantities":
        """Choose the quantities."""
        reported = reported_quantities(view, settings)
        return RegimeQuantities(reported, [*arm_quantities(view.arms)], repetitions(view, reported))

    def all(self) -> list[Quantity]:
        """List them with the differences that judge them."""
        every = [quantity for quantities in self.repeated.values() for quantity in quantities]
        told = [*self.reported, *self.arms]
        return [*told, *judging_differences(told), *every]


@dataclass(frozen=True)
class RegimeValues:
    """One regime, measured: ``values`` also has the differences and single re-seeds, by name."""

    quantities: RegimeQuantities
    values: dict[str, Measured]
    tail: Tail | None
    draws: Draws

    def perplexities(self, name: str) -> list[float]:
        """List the perplexity of every re-seed; nothing for what is not re-seeded."""
        return [self.values[q.name].ppl for q in self.quantities.repeated.get(name, [])]

    def ppl(self, name: str) -> float:
        """Return the perplexity: with re-seeds the mean of theirs, as the paper has it."""
        return fmean(self.perplexities(name) or [self.values[name].ppl])


class _RunningRegime:
    """The quantities of one regime, and their sums so far."""

    def __init__(self, view: RegimeView, settings: EstimatorSettings) -> None:
        self.quantities = RegimeQuantities.of(view, settings)
        self.draws: Draws = "bank" if isinstance(view, BankView) else "fresh"
        self.metrics = corpus_metrics(self.quantities.all(), over_ranks=False)
        self.tail = GapTail()

    def update(self, view: RegimeView, part: BlockScores) -> None:
        """Count some sequences."""
        self.metrics.update(view, part.num_tokens)
        self.tail.update(view.regime, part.sequences, part.num_tokens)

    def finish(self) -> RegimeValues:
        """Read the values off the sums."""
        values, tail = measured(self.metrics), self.tail.compute()
        return RegimeValues(self.quantities, values, tail, self.draws)


@dataclass
class CorpusCounts:
    """How much was seen."""

    sequences: int = 0
    blocks: int = 0
    tokens: int = 0
    bytes: int | None = 0
    """of the original text; None where any part does not know them"""
    orderings: int = 0
    seconds: float = 0.0

    def update(self, part: BlockScores) -> None:
        """Count some sequences."""
        self.sequences += len(part.sequences)
        self.blocks += int((part.num_tokens > 0).sum())
        self.tokens += int(part.num_tokens.sum())
        if self.bytes is not None:
            more = part.num_bytes
            self.bytes = None if more is None else self.bytes + int(more.sum())
        self.orderings = next(iter(part.regimes.values())).scores.shape[-1]
        self.seconds += part.seconds


def measure_regimes(
    parts: Iterable[BlockScores], settings: EstimatorSettings, bank: Bank | None = None
) -> tuple[dict[str, RegimeValues], CorpusCounts]:
    """Measure everything that ``results.json`` tells, in one pass; a bank is resampled."""
    running: dict[str, _RunningRegime] = {}
    counts = CorpusCounts()
    for part in parts:
        counts.update(part)
        views = part.views() if bank is None else bank.views(part, settings)
        for name, view in views.items():
            if name not in running:
                running[name] = _RunningRegime(view, settings)
            running[name].update(view, part)
    if not counts.tokens:
        raise ValueError("scores: expected at least one scored token, got none")
    return {name: regime.finish() for name, regime in running.items()}, counts
