"""One pass over the parts: every quantity of every regime, per token, with its error."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean

from torchmetrics import MetricCollection

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
class RegimeValues:
    """One regime, measured: ``values`` also has the differences and single re-seeds, by name."""

    reported: list[Quantity]
    arms: list[Quantity]
    repeated: dict[str, list[Quantity]]
    values: dict[str, Measured]
    tail: Tail | None

    @property
    def is_of_a_bank(self) -> bool:
        """Tell whether all blocks shared their orderings."""
        return bool(self.repeated)

    def perplexities(self, name: str) -> list[float]:
        """List the perplexity of every re-seed; nothing for what is not re-seeded."""
        return [self.values[quantity.name].ppl for quantity in self.repeated.get(name, [])]

    def ppl(self, name: str) -> float:
        """Return the perplexity: with re-seeds the mean of theirs, as the paper has it."""
        return fmean(self.perplexities(name) or [self.values[name].ppl])


@dataclass
class _RunningRegime:
    """The quantities of one regime, and their sums so far."""

    reported: list[Quantity]
    arms: list[Quantity]
    repeated: dict[str, list[Quantity]]
    metrics: MetricCollection
    tail: GapTail = field(default_factory=GapTail)

    @staticmethod
    def of(view: RegimeView, settings: EstimatorSettings) -> "_RunningRegime":
        """Choose the quantities by what the regime has."""
        reported, arms = reported_quantities(view, settings), [*arm_quantities(view.arms)]
        repeated = repetitions(view, reported)
        every = [quantity for quantities in repeated.values() for quantity in quantities]
        differences = judging_differences(reported + arms)
        metrics = corpus_metrics([*reported, *arms, *differences, *every], over_ranks=False)
        return _RunningRegime(reported, arms, repeated, metrics)

    def finish(self) -> RegimeValues:
        """Read the values off the sums."""
        return RegimeValues(
            self.reported, self.arms, self.repeated, measured(self.metrics), self.tail.compute()
        )


@dataclass
class CorpusCounts:
    """How much was seen."""

    sequences: int = 0
    blocks: int = 0
    tokens: int = 0
    orderings: int = 0
    seconds: float = 0.0

    def update(self, part: BlockScores) -> None:
        """Count some sequences."""
        self.sequences += len(part.sequences)
        self.blocks += int((part.num_tokens > 0).sum())
        self.tokens += int(part.num_tokens.sum())
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
                running[name] = _RunningRegime.of(view, settings)
            running[name].metrics.update(view, part.num_tokens)
            running[name].tail.update(view.regime, part.sequences, part.num_tokens)
    if not counts.tokens:
        raise ValueError("scores: expected at least one scored token, got none")
    return {name: regime.finish() for name, regime in running.items()}, counts
