"""One pass over the parts: every quantity of every regime, per token, with its error."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, product
from statistics import fmean

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure.bank_quantities import (
    bank_quantities,
    repetitions,
    single_banks,
    widen,
)
from tube_lightning.measure.banks import Bank, BankView
from tube_lightning.measure.differences import difference_name, judging_differences
from tube_lightning.measure.ledger import Ledger
from tube_lightning.measure.tails import GapTail, Tail
from tube_lightning.metrics import (
    ELBO_K,
    EXACT,
    Measured,
    Quantity,
    arm_quantities,
    exact_quantities,
    sampled_quantities,
    surrogate_tubes,
)
from tube_lightning.protocol import Draws
from tube_lightning.regimes import Regime
from tube_lightning.scores import ARM, NOWHERE, BlockScores, RegimeView


def reported_quantities(view: RegimeView, settings: EstimatorSettings) -> list[Quantity]:
    """List what can be told of a regime, with the names of ``results.json``."""
    regime = view.regime
    there = (regime.exact is not None, regime.exact_elbo is not None)
    exact = [q for q, known in zip(exact_quantities(), there, strict=True) if known]
    if isinstance(view, BankView):
        return [*exact, *bank_quantities(view, settings)]
    sampled = sampled_quantities(regime.scores.shape[-1], settings)
    return [*exact, *sampled, *surrogate_tubes(view.surrogates)]


@dataclass(frozen=True)
class RegimeQuantities:
    """What is measured of a regime, chosen by what it has."""

    reported: list[Quantity]
    arms: list[Quantity]
    repeated: dict[str, list[Quantity]]
    """each re-seed of what is re-seeded, by the name of the whole"""
    of_banks: dict[str, list[Quantity]]
    """each bank of several, by the name of the whole"""

    @staticmethod
    def of(view: RegimeView, settings: EstimatorSettings) -> "RegimeQuantities":
        """Choose the quantities."""
        reported = reported_quantities(view, settings)
        return RegimeQuantities(
            reported,
            [*arm_quantities(view.arms)],
            repetitions(view, reported),
            single_banks(view, reported),
        )

    def all(self) -> list[Quantity]:
        """List them with the differences that judge them."""
        several = (*self.repeated.values(), *self.of_banks.values())
        told = [*self.reported, *self.arms]
        return [*told, *judging_differences(told), *chain.from_iterable(several)]

    def add_luck(self, values: dict[str, Measured]) -> dict[str, Measured]:
        """Put the spread over banks into the errors of what they give, and of its differences."""
        rates = {
            name: [values[bank.name].nats_per_token for bank in banks]
            for name, banks in self.of_banks.items()
        }
        widened = {name: widen(values[name], of_banks) for name, of_banks in rates.items()}
        for name, reference in product(rates, (EXACT, ELBO_K, ARM)):
            key = difference_name(name, reference)
            if key in values:
                theirs = rates.get(reference, [0.0] * len(rates[name]))
                pairs = zip(rates[name], theirs, strict=True)
                widened[key] = widen(values[key], [ours - other for ours, other in pairs])
        return {**values, **widened}


@dataclass(frozen=True)
class RegimeValues:
    """One regime, measured: ``values`` also has the differences and single re-seeds, by name."""

    quantities: RegimeQuantities
    values: dict[str, Measured]
    tail: Tail | None
    draws: Draws
    num_banks: int = 1

    def perplexities(self, name: str) -> list[float]:
        """List the perplexity of every re-seed; nothing for what is not re-seeded."""
        return [self.values[q.name].ppl for q in self.quantities.repeated.get(name, [])]

    def ppl(self, name: str) -> float:
        """Return the perplexity: with re-seeds the mean of theirs, as the paper has it."""
        return fmean(self.perplexities(name) or [self.values[name].ppl])


class _RunningRegime:
    """The quantities of one regime, and their sums so far."""

    def __init__(self, name: str, view: RegimeView, settings: EstimatorSettings) -> None:
        self.quantities = RegimeQuantities.of(view, settings)
        self.draws: Draws = "bank" if isinstance(view, BankView) else "fresh"
        self.num_banks = len(view.banks) if isinstance(view, BankView) else 1
        self.ledger = Ledger(self.quantities.all())
        self.tail = GapTail(Regime.parse(name), of_a_bank=self.draws == "bank")

    def update(self, view: RegimeView, part: BlockScores) -> None:
        """Count some sequences."""
        self.ledger.update(view, part)
        self.tail.update(view.regime, part)

    def finish(self) -> RegimeValues:
        """Read the values off the sums."""
        values = self.quantities.add_luck(self.ledger.finish())
        return RegimeValues(
            self.quantities, values, self.tail.compute(), self.draws, self.num_banks
        )


@dataclass
class CorpusCounts:
    """How much was seen."""

    sequences: int = 0
    documents: int | None = 0
    """that scored tokens are from; None where any part does not know them"""
    blocks: int = 0
    tokens: int = 0
    bytes: int | None = 0
    """of the original text; None where any part does not know them"""
    seconds: float = 0.0
    _seen: set[int] = field(default_factory=set, repr=False)

    def update(self, part: BlockScores) -> None:
        """Count some sequences."""
        self.sequences += len(part.sequences)
        if part.documents is None:
            self.documents = None
        if self.documents is not None and part.documents is not None:
            self._seen.update(part.documents.unique().tolist())
            self.documents = len(self._seen - {NOWHERE})
        self.blocks += int((part.num_tokens > 0).sum())
        self.tokens += int(part.num_tokens.sum())
        if self.bytes is not None:
            more = part.num_bytes
            self.bytes = None if more is None else self.bytes + int(more.sum())
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
                running[name] = _RunningRegime(name, view, settings)
            running[name].update(view, part)
    if not counts.tokens:
        raise ValueError("scores: expected at least one scored token, got none")
    return {name: regime.finish() for name, regime in running.items()}, counts
