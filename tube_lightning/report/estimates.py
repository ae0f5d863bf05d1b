"""Measured values as entries of ``results.json``: intervals, and which bounds are violated."""

import math
import statistics
from typing import NamedTuple

from tube_lightning.bounds import ESTIMATORS
from tube_lightning.measure import RegimeValues, difference_name
from tube_lightning.metrics import ELBO_K, EXACT, Measured, Quantity, perplexity
from tube_lightning.protocol import Draws
from tube_lightning.report.schema import Estimate, Holds

ROUNDING = 1e-9
"""Relative differences below this are no differences."""
LARGE_BIAS = 1e-3
"""A perplexity that is biased by a smaller share than this is not worth a word."""
FEW_BLOCKS = 1000
"""Averages over fewer blocks are said to be such, whatever their error."""
CHANCE = 1e-5
"""Guaranteed bounds that cross with a smaller p-value than this did not cross by chance."""


class InconsistentBoundsError(ValueError):
    """Bounds that hold for every distribution crossed: a bug, or a model that is not one."""


class Side(NamedTuple):
    """On which side of its reference a bound is."""

    wrong: bool
    """the value itself is on the wrong side"""
    surely: bool | None
    """so is the 95% interval of the paired difference; None where there is none"""


def finite(value: float) -> float | None:
    """Return None for what JSON cannot hold."""
    return value if math.isfinite(value) else None


class TextSize(NamedTuple):
    """How large the scored text is, as it was before it was tokenised; None where unknown."""

    num_bytes: int | None = None
    bytes_per_word: float | None = None


def regime_estimates(regime: RegimeValues, size: TextSize) -> dict[str, Estimate]:
    """Describe all that is reported of a regime, of a text of some size."""
    described = {}
    for quantity in regime.quantities.reported:
        name, side = quantity.name, judge_side(quantity, regime)
        whole = estimate(quantity, regime.values[name], size, side, regime.draws)
        described[name] = _average_reseeds(whole, regime.perplexities(name))
    return described


def estimate(
    quantity: Quantity,
    value: Measured,
    size: TextSize,
    side: Side | None = None,
    draws: Draws = "fresh",
) -> Estimate:
    """Describe one value."""
    nats, margin = value.nats_per_token, value.margin
    interval = [perplexity(nats + margin), perplexity(nats - margin)]
    return {
        "ppl": finite(value.ppl),
        "nats_per_token": finite(nats),
        "bits_per_byte": _bits_per_byte(value, size.num_bytes),
        "ppl_per_word": _per_word(value, size),
        "ci95": interval if all(map(math.isfinite, interval)) else None,
        "standard_error": finite(value.standard_error),
        "degrees_of_freedom": finite(value.error.degrees),
        "error_method": value.error.method,
        "effective_sequences": finite(value.error.effective_sequences),
        "side": quantity.side,
        "bound_preserving": quantity.bound_preserving,
        "holds": _holds(quantity, draws),
        "wrong_side": None if side is None else side.wrong,
        "violated": None if side is None else side.surely,
    }


def _holds(quantity: Quantity, draws: Draws) -> Holds:
    if quantity.side is None:
        return "exactly"
    if not quantity.bound_preserving:
        return "not"
    if draws == "bank" and quantity.side == "upper":
        return "in expectation, for nats of the bank's mean"
    return "in expectation, for nats"


def _bits_per_byte(value: Measured, num_bytes: int | None) -> float | None:
    if not num_bytes:
        return None
    return finite(-value.nats_per_token * value.num_tokens / num_bytes / math.log(2))


def _per_word(value: Measured, size: TextSize) -> float | None:
    if not size.num_bytes or size.bytes_per_word is None:
        return None
    return finite(
        perplexity(value.nats_per_token * value.num_tokens / size.num_bytes * size.bytes_per_word)
    )


def perplexity_bias(regimes: dict[str, RegimeValues], num_blocks: int) -> float | None:
    """Tell by which share perplexities of bounds may be too high; 0 where it is not worth a word.

    Bounds are about nats, and E[exp(-b)] >= exp(-E[b]), by about half the variance of b over
    orderings: at most half the squared error of b, or of its difference from the exact value, in
    which the text has a smaller part. Told above LARGE_BIAS, and for fewer than FEW_BLOCKS; None
    where it is unknown.
    """
    errors = [
        _least_error(regime, quantity.name)
        for regime in regimes.values()
        for quantity in regime.quantities.reported
        if quantity.bound_preserving and _has_column(quantity.name, regime.draws)
    ]
    known = [error**2 / 2 for error in errors if error is not None]
    for regime in regimes.values():
        for quantity in regime.quantities.reported:  # a mean of perplexities shows its own bias
            if regime.perplexities(quantity.name) and quantity.bound_preserving:
                ratio = regime.ppl(quantity.name) / regime.values[quantity.name].ppl
                known += [ratio - 1] if math.isfinite(ratio) else []
    if not known:
        return None
    return max(known) if num_blocks < FEW_BLOCKS or max(known) > LARGE_BIAS else 0.0


def _has_column(name: str, draws: Draws) -> bool:
    return name in ESTIMATORS and draws in ESTIMATORS[name].columns_for


def _least_error(regime: RegimeValues, name: str) -> float | None:
    names = (name, difference_name(name, EXACT))
    errors = [regime.values[n].standard_error for n in names if n in regime.values]
    return min(filter(math.isfinite, errors), default=None)


def _average_reseeds(whole: Estimate, perplexities: list[float]) -> Estimate:
    """Average over re-seeds as the paper does: perplexities, with their standard deviation."""
    if not perplexities:
        return whole
    known = len(perplexities) > 1 and all(map(math.isfinite, perplexities))
    std = statistics.stdev(perplexities) if known else None
    return {**whole, "ppl": finite(statistics.fmean(perplexities)), "std": std}


def judge_side(quantity: Quantity, regime: RegimeValues) -> Side | None:
    """Tell whether a bound is on the wrong side of the exact value, or of ELBO_K for upper ones.

    One rule for all, whatever they promise. None where there is nothing to compare with.
    """
    reference = EXACT if EXACT in regime.values else ELBO_K
    if quantity.side is None or reference not in regime.values:
        return None
    if reference == ELBO_K and quantity.side == "lower":
        return None
    if not _is_wrong_side(quantity, regime, reference):
        return Side(wrong=False, surely=False)
    difference = regime.values[difference_name(quantity.name, reference)]
    if math.isinf(difference.nats_per_token):
        return Side(wrong=True, surely=True)
    if math.isnan(difference.margin):
        return Side(wrong=True, surely=None)
    return Side(wrong=True, surely=abs(difference.nats_per_token) > difference.margin)


def _is_wrong_side(quantity: Quantity, regime: RegimeValues, reference: str) -> bool:
    ours, theirs = (regime.values[name].nats_per_token for name in (quantity.name, reference))
    above = 0.0 if ours == theirs else ours - theirs
    wrong_by = -above if quantity.side == "upper" else above
    return wrong_by > ROUNDING * (abs(theirs) if math.isfinite(theirs) else 1.0)


def check_consistency(regimes: dict[str, RegimeValues]) -> None:
    """Raise if lower, exact and upper values crossed by more than chance can explain.

    Blocks that share one bank are about its mean, so there ELBO_K stands for the exact value of
    what TUBE bounds, and is no bound of the model's: the bank may happen to be a good one.
    """
    for name, regime in regimes.items():
        of_a_bank = regime.draws == "bank"
        for quantity in regime.quantities.reported:
            upper = quantity.side == "upper"
            if not quantity.bound_preserving or quantity.side is None:
                continue
            reference = EXACT if EXACT in regime.values and not (of_a_bank and upper) else ELBO_K
            if reference not in regime.values or (quantity.name == ELBO_K and of_a_bank):
                continue
            if reference == ELBO_K and not upper:
                continue
            difference = regime.values[difference_name(quantity.name, reference)]
            if (
                _is_wrong_side(quantity, regime, reference)
                and difference.error.one_sided_p(abs(difference.nats_per_token)) < CHANCE
            ):
                ours, theirs = (regime.values[n] for n in (quantity.name, reference))
                raise InconsistentBoundsError(
                    f"{name}: expected {quantity.name} ({ours.nats_per_token:.9g} nats per token) "
                    f"to be {'at least' if upper else 'at most'} {reference} "
                    f"({theirs.nats_per_token:.9g}); this is a bug, or the model is not "
                    "a distribution; please report"
                )
