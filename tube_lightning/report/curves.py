"""What the figures show beyond the table, measured in one more pass over the parts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float64
from torch import Tensor

from tube_lightning.bounds import (
    TangentTerms,
    cubo,
    elbo_k,
    tube_loo_terms,
    tube_split_terms,
    tube_terms,
)
from tube_lightning.metrics import Quantity, corpus_metrics
from tube_lightning.report.comparisons import arm_quantities, difference_name, paired_difference
from tube_lightning.report.measurement import Measured, measured
from tube_lightning.report.views import BatchView, RegimeView
from tube_lightning.report.wording import ANY_ORDER, is_random
from tube_lightning.score_files import RegimeScores

BETAS = (1.0, 1.5, 2.0, 3.0, 5.0)
"""Of the paper's CUBO heatmap."""
Series = dict[int, Measured]
Values = Float64[Tensor, "batch blocks"] | TangentTerms


@dataclass(frozen=True)
class Curves:
    """Values of one regime, per token. Errors are those of the difference from the reference."""

    regime: str
    num_orderings: int
    reference: Measured
    """exact if there, else ELBO_K of all orderings"""
    is_exact: bool
    elbo_k: Measured
    """of all orderings"""
    arm: Measured | None
    elbo: Series
    """ELBO_m of the first m orderings"""
    tube_loo: Series
    tube_split: Series
    tube_psi: Series
    """TUBE at psi_M: psi from M orderings of the first half, p_hat from the second half"""
    surrogates: dict[str, Measured]
    """TUBE at psi_pi, psi_arm, psi_arm_ft, with the same p_hat"""
    cubo: dict[tuple[int, float], Measured]
    """by number of orderings and beta"""


def figure_regime(regimes: Iterable[str]) -> str | None:
    """Choose the regime of the curves: any order, or else the first in which orderings matter."""
    random = [name for name in regimes if is_random(name)]
    return ANY_ORDER if ANY_ORDER in random else next(iter(random), None)


def doublings(first: int, last: int) -> list[int]:
    """List first, 2 first, 4 first, ... and the last.

    >>> doublings(2, 24)
    [2, 4, 8, 16, 24]
    """
    numbers = []
    while first < last:
        numbers.append(first)
        first *= 2
    return [*numbers, last]


def measure_curves(batches: Iterable[BatchView], regime: str) -> Curves | None:
    """Measure all curves of a regime; None for fewer than two orderings."""
    plan, metrics = None, None
    for batch in batches:
        view = batch.regimes[regime]
        if plan is None or metrics is None:
            if view.scores.shape[-1] < 2:
                return None
            plan = _Plan(view)
            metrics = corpus_metrics(plan.quantities, over_ranks=False)
        metrics.update(view, batch.num_tokens)
    return None if plan is None or metrics is None else plan.curves(regime, measured(metrics))


def _quantity(name: str, read: Callable[[RegimeScores], Values]) -> Quantity:
    return Quantity(name, read, None, True)


def _elbo_of(m: int, regime: RegimeScores) -> Values:
    return elbo_k(regime.scores[..., :m])


def _loo_of(m: int, regime: RegimeScores) -> Values:
    return tube_loo_terms(regime.scores[..., :m])


def _split_of(m: int, regime: RegimeScores) -> Values:
    return tube_split_terms(regime.scores[..., :m])


def _cubo_of(n: int, beta: float, regime: RegimeScores) -> Values:
    return cubo(regime.scores[..., :n], beta)


def _tube_at_psi_m(half: int, m: int, regime: RegimeScores) -> Values:
    return tube_terms(regime.scores[..., half:], elbo_k(regime.scores[..., :m]))


def _tube_at(half: int, surrogate: str, regime: RegimeScores) -> Values:
    return tube_terms(regime.scores[..., half:], (regime.log_psi or {})[surrogate])


def _exact(regime: RegimeScores) -> Float64[Tensor, "batch blocks"]:
    if regime.exact is None:
        raise ValueError("exact: expected values in every part, got none in some")
    return regime.exact


class _Plan:
    """The quantities of the curves, and where their values go."""

    def __init__(self, view: RegimeView) -> None:
        self.num = num = view.scores.shape[-1]
        self.reference = "exact" if view.exact is not None else "elbo_k"
        self.sizes, self.halves = doublings(2, num), doublings(1, num // 2)
        self.columns = doublings(1, num)
        self.surrogates = list(view.log_psi or {})
        whole = [_quantity("elbo_k", partial(_elbo_of, num))]
        if view.exact is not None:
            whole.append(_quantity("exact", _exact))
        reference = whole[-1]
        curves = [*self._bracket(), *self._at_surrogates(), *self._cubo()]
        paired = [paired_difference(quantity, reference) for quantity in curves]
        self.quantities = [*whole, *arm_quantities(view), *curves, *paired]

    def _bracket(self) -> list[Quantity]:
        bounds = {"elbo": _elbo_of, "loo": _loo_of, "split": _split_of}
        return [
            _quantity(f"{name}_{m}", partial(read, m))
            for name, read in bounds.items()
            for m in self.sizes
        ]

    def _at_surrogates(self) -> list[Quantity]:
        half = self.num // 2
        at_psi_m = [_quantity(f"psi_{m}", partial(_tube_at_psi_m, half, m)) for m in self.halves]
        others = [_quantity(f"at_{n}", partial(_tube_at, half, n)) for n in self.surrogates]
        return at_psi_m + others

    def _cubo(self) -> list[Quantity]:
        return [
            _quantity(f"cubo_{n}_{row}", partial(_cubo_of, n, beta))
            for n in self.columns
            for row, beta in enumerate(BETAS)
        ]

    def curves(self, regime: str, values: dict[str, Measured]) -> Curves:
        """Sort the values into curves."""

        def paired(name: str) -> Measured:
            error = values[difference_name(name, self.reference)].standard_error
            return values[name]._replace(standard_error=error)

        def series(name: str, numbers: list[int]) -> Series:
            return {number: paired(f"{name}_{number}") for number in numbers}

        return Curves(
            regime=regime,
            num_orderings=self.num,
            reference=values[self.reference],
            is_exact=self.reference == "exact",
            elbo_k=values["elbo_k"],
            arm=values.get("arm"),
            elbo=series("elbo", self.sizes),
            tube_loo=series("loo", self.sizes),
            tube_split=series("split", self.sizes),
            tube_psi=series("psi", self.halves),
            surrogates={name: paired(f"at_{name}") for name in self.surrogates},
            cubo={
                (n, beta): paired(f"cubo_{n}_{row}")
                for n in self.columns
                for row, beta in enumerate(BETAS)
            },
        )
