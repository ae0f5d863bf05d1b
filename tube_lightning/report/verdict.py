"""Who has the better likelihood, in one sentence, with the sampling error of a paired test."""

import math

from tube_lightning.bounds import ESTIMATORS, headline_bound
from tube_lightning.measure import RegimeValues, difference_name
from tube_lightning.metrics import ELBO_K, EXACT, Measured
from tube_lightning.regimes import ANY_ORDER, Regime, headline
from tube_lightning.report.wording import ppl_text
from tube_lightning.scores import ARM


def verdict_sentence(regimes: dict[str, RegimeValues]) -> str:
    """Compare the block model with the ARM, or give the bracket where there is none."""
    name = headline(regimes)
    regime = regimes[name]
    told = Regime.parse(name)
    model = "any-order model" if told == ANY_ORDER else f"block model ({told.title})"
    low, high = headline_bound("upper", regime.draws).name, ELBO_K
    if ARM not in regime.values:
        return _tell_without_arm(model, regime, low, high)
    arm = ppl_text(regime.ppl(ARM))
    if EXACT in regime.values:
        low = high = EXACT
    if low in regime.values and _sign(regime, low) < 0:
        return (
            f"The ARM wins: its perplexity {arm} is below the {model}'s, which is "
            f"{_bound(regime, low, 'at least')} {_margin(regime, low)}."
        )
    if _sign(regime, high) > 0:
        return (
            f"The {model} wins: its perplexity is {_bound(regime, high, 'at most')}, "
            f"below the ARM's {arm} {_margin(regime, high)}."
        )
    return _tell_undecided(model, regime, low, high, arm)


def _tell_without_arm(model: str, regime: RegimeValues, low: str, high: str) -> str:
    if EXACT in regime.values:
        text = f"The {model}'s perplexity is {_bound(regime, EXACT, '')}"
    elif low in regime.values:
        at_least, at_most = _bound(regime, low, "at least"), _bound(regime, high, "at most")
        text = f"The {model}'s perplexity is {at_least} and {at_most}, in expectation"
    else:
        text = f"The {model}'s perplexity is {_bound(regime, high, 'at most')}"
    return text + "; there is no ARM to compare it with."


def _tell_undecided(model: str, regime: RegimeValues, low: str, high: str, arm: str) -> str:
    if low == EXACT:
        return (
            f"Undecided: the {model}'s perplexity is {_bound(regime, EXACT, '')} and the ARM's "
            f"{arm} {_margin(regime, EXACT)}, equal within the sampling error over sequences."
        )
    if low not in regime.values:
        return (
            f"Undecided: the {model}'s perplexity is {_bound(regime, high, 'at most')} and the "
            f"ARM's {arm}; TUBE needs two orderings or more."
        )
    low_ppl, high_ppl = (ppl_text(regime.ppl(name)) for name in (low, high))
    return (
        f"Undecided: the bracket [{low_ppl}, {high_ppl}] of the {model}'s perplexity "
        f"contains the ARM's {arm}, or reaches it within the sampling error over sequences."
    )


def _bound(regime: RegimeValues, name: str, relation: str) -> str:
    ppl = ppl_text(regime.ppl(name))
    if name == EXACT:
        return f"{ppl} exactly"
    of_what = " of one bank of orderings" if regime.draws == "bank" else ""
    return f"{relation} {ppl} ({ESTIMATORS[name].title}{of_what})"


def _difference(regime: RegimeValues, name: str) -> Measured:
    return regime.values[difference_name(name, ARM)]


def _sign(regime: RegimeValues, name: str) -> int:
    """Tell the sign of log p - log p_ARM: 0 if the 95% interval of the difference holds both.

    A single sequence has no error to compare with: its values are taken as they are.
    """
    difference = _difference(regime, name)
    if abs(difference.nats_per_token) <= difference.margin:
        return 0
    return (difference.nats_per_token > 0) - (difference.nats_per_token < 0)


def _margin(regime: RegimeValues, name: str) -> str:
    """Write the difference of perplexities with its 95% margin over sequences.

    The delta method: p - q of p = exp(-a) and q = exp(-b) has the variance of q b - p a.
    """
    ours, arm = regime.ppl(name), regime.ppl(ARM)
    difference = ppl_text(abs(ours - arm), scale=arm)
    a, b = regime.values[name].margin, regime.values[ARM].margin
    covariance = (a**2 + b**2 - _difference(regime, name).margin ** 2) / 2
    variance = (ours * a) ** 2 + (arm * b) ** 2 - 2 * ours * arm * covariance
    if not math.isfinite(variance):
        return f"(difference {difference}; its error is unknown)"
    return f"(difference {difference} +- {ppl_text(math.sqrt(max(0.0, variance)), scale=arm)})"
