"""Measured values as entries of ``results.json``: intervals, and which bounds are violated."""

import math
import statistics

from tube_lightning.measure import RegimeValues, difference_name
from tube_lightning.metrics import ELBO_K, EXACT, Measured, Quantity, perplexity
from tube_lightning.report.schema import Estimate

ROUNDING = 1e-9
"""Relative differences below this are no differences."""
SURE = 4.0
"""Guaranteed bounds that cross by so many standard errors did not cross by chance."""
FEWEST_SEQUENCES = 30
"""Standard errors of fewer sequences are too uncertain to call a crossing an error."""


class InconsistentBoundsError(ValueError):
    """Bounds that hold for every distribution crossed: a bug, or a model that is not one."""


def finite(value: float) -> float | None:
    """Return None for what JSON cannot hold."""
    return value if math.isfinite(value) else None


def regime_estimates(regime: RegimeValues, num_bytes: int | None) -> dict[str, Estimate]:
    """Describe all that is reported of a regime, of a text of so many bytes."""
    described = {}
    for quantity in regime.quantities.reported:
        name, violated = quantity.name, is_violated(quantity, regime)
        whole = estimate(quantity, regime.values[name], num_bytes, violated)
        described[name] = _average_reseeds(whole, regime.perplexities(name))
    return described


def estimate(
    quantity: Quantity, value: Measured, num_bytes: int | None, violated: bool | None = None
) -> Estimate:
    """Describe one value."""
    nats, margin = value.nats_per_token, value.margin
    interval = [perplexity(nats + margin), perplexity(nats - margin)]
    return {
        "ppl": finite(value.ppl),
        "nats_per_token": finite(nats),
        "bits_per_byte": _bits_per_byte(value, num_bytes),
        "ci95": interval if all(map(math.isfinite, interval)) else None,
        "standard_error": finite(value.standard_error),
        "side": quantity.side,
        "bound_preserving": quantity.bound_preserving,
        "violated": violated,
    }


def _bits_per_byte(value: Measured, num_bytes: int | None) -> float | None:
    if not num_bytes:
        return None
    return finite(-value.nats_per_token * value.num_tokens / num_bytes / math.log(2))


def _average_reseeds(whole: Estimate, perplexities: list[float]) -> Estimate:
    """Average over re-seeds as the paper does: perplexities, with their standard deviation."""
    if not perplexities:
        return whole
    known = len(perplexities) > 1 and all(map(math.isfinite, perplexities))
    std = statistics.stdev(perplexities) if known else None
    return {**whole, "ppl": finite(statistics.fmean(perplexities)), "std": std}


def is_violated(quantity: Quantity, regime: RegimeValues) -> bool | None:
    """Tell whether a bound is on the wrong side of the exact value, or of ELBO_K for upper ones.

    What keeps its side in expectation may be on the wrong one by chance: it is violated if the 95%
    interval of the paired difference is on the wrong side. None where nothing can be told.
    """
    reference = EXACT if EXACT in regime.values else ELBO_K
    if quantity.side is None or reference not in regime.values:
        return None
    if reference == ELBO_K and quantity.side == "lower":
        return None
    if not _is_wrong_side(quantity, regime, reference):
        return False
    if not quantity.bound_preserving:
        return True
    difference = regime.values[difference_name(quantity.name, reference)]
    if math.isnan(difference.margin):
        return None
    return abs(difference.nats_per_token) > difference.margin


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
                and abs(difference.nats_per_token) > SURE * difference.standard_error
            ):
                ours, theirs = (regime.values[n] for n in (quantity.name, reference))
                raise InconsistentBoundsError(
                    f"{name}: expected {quantity.name} ({ours.nats_per_token:.9g} nats per token) "
                    f"to be {'at least' if upper else 'at most'} {reference} "
                    f"({theirs.nats_per_token:.9g}); this is a bug, or the model is not "
                    "a distribution; please report"
                )
