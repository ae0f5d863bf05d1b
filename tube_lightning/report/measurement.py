"""One pass over the parts: every quantity of every regime, per token, with its error."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from torchmetrics import MetricCollection

from tube_lightning.metrics import EstimatorSettings, Quantity, corpus_metrics, perplexity
from tube_lightning.report.comparisons import (
    arm_quantities,
    paired_differences,
    repetitions,
    reported_quantities,
)
from tube_lightning.report.intervals import t95
from tube_lightning.report.schema import Tail
from tube_lightning.report.tails import GapTail
from tube_lightning.report.views import BatchView, RegimeView


class Measured(NamedTuple):
    """Nats per token over the corpus, and their standard error over sequences (or NaN)."""

    nats_per_token: float
    standard_error: float
    num_sequences: int

    @property
    def margin(self) -> float:
        """Half the width of the 95% interval of the nats; NaN for a single sequence."""
        return t95(self.num_sequences) * self.standard_error

    @property
    def ppl(self) -> float:
        """exp(-nats), or inf."""
        return perplexity(self.nats_per_token)


def measured(metrics: MetricCollection) -> dict[str, Measured]:
    """Read the values off the metrics of a corpus."""
    return {
        name: Measured(
            value["nats_per_token"].item(),
            value["standard_error"].item(),
            int(value["num_sequences"]),
        )
        for name, value in ((name, metric.compute()) for name, metric in metrics.items())
    }


@dataclass
class RegimeMeasurement:
    """The quantities of one regime, and their running sums."""

    reported: list[Quantity]
    arms: list[Quantity]
    repeated: dict[str, list[Quantity]]
    metrics: MetricCollection
    tail: GapTail = field(default_factory=GapTail)

    @staticmethod
    def of(regime: RegimeView, settings: EstimatorSettings) -> "RegimeMeasurement":
        """Choose the quantities by what the regime has."""
        reported, arms = reported_quantities(regime, settings), arm_quantities(regime)
        repeated = repetitions(regime, reported)
        every = [quantity for quantities in repeated.values() for quantity in quantities]
        differences = paired_differences(reported + arms)
        metrics = corpus_metrics([*reported, *arms, *differences, *every], over_ranks=False)
        return RegimeMeasurement(reported, arms, repeated, metrics)


@dataclass(frozen=True)
class RegimeValues:
    """One regime, measured: ``values`` also has the differences and single re-seeds, by name."""

    reported: list[Quantity]
    arms: list[Quantity]
    repeated: dict[str, list[Quantity]]
    values: dict[str, Measured]
    tail: Tail | None

    def perplexities(self, name: str) -> list[float]:
        """List the perplexity of every re-seed; nothing for what is not re-seeded."""
        return [self.values[quantity.name].ppl for quantity in self.repeated.get(name, [])]

    def ppl(self, name: str) -> float:
        """Return the perplexity: with re-seeds the mean of theirs, as the paper has it."""
        return fmean(self.perplexities(name) or [self.values[name].ppl])


@dataclass
class CorpusCounts:
    """How much was seen."""

    sequences: int = 0
    blocks: int = 0
    tokens: int = 0
    orderings: int = 0
    seconds: float = 0.0

    def update(self, batch: BatchView) -> None:
        """Count some sequences."""
        self.sequences += len(batch.sequences)
        self.blocks += int((batch.num_tokens > 0).sum())
        self.tokens += int(batch.num_tokens.sum())
        self.orderings = next(iter(batch.regimes.values())).scores.shape[-1]
        self.seconds += batch.seconds


def measure_regimes(
    batches: Iterable[BatchView], settings: EstimatorSettings
) -> tuple[dict[str, RegimeValues], CorpusCounts]:
    """Measure everything that ``results.json`` tells, in one pass."""
    running: dict[str, RegimeMeasurement] = {}
    counts = CorpusCounts()
    for batch in batches:
        counts.update(batch)
        for name, regime in batch.regimes.items():
            if name not in running:
                running[name] = RegimeMeasurement.of(regime, settings)
            running[name].metrics.update(regime, batch.num_tokens)
            running[name].tail.update(regime, batch.sequences, batch.num_tokens)
    if not counts.tokens:
        raise ValueError("scores: expected at least one scored token, got none")
    values = {
        name: RegimeValues(m.reported, m.arms, m.repeated, measured(m.metrics), m.tail.compute())
        for name, m in running.items()
    }
    return values, counts
