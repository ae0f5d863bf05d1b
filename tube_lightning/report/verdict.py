"""Who has the better likelihood: a paired test, and a sentence that says no more than it."""

import math
from dataclasses import dataclass
from functools import cached_property

from tube_lightning.bounds import ESTIMATORS, headline_bound
from tube_lightning.measure import CorpusCounts, RegimeValues, difference_name
from tube_lightning.metrics import ELBO_K, EXACT, Measured
from tube_lightning.regimes import ANY_ORDER, Regime, headline
from tube_lightning.report.estimates import finite
from tube_lightning.report.schema import Comparison, Winner
from tube_lightning.report.wording import counted, ppl_text
from tube_lightning.scores import ARM

LEVEL = 0.025
"""One-sided: the 95% interval of a difference is then on one side of zero."""
FEW_DOCUMENTS = 20
"""Fewer independent documents than this leave the error itself uncertain, and it is said."""


@dataclass(frozen=True)
class Verdict:
    """The block model against the ARM, in the regime that a summary is about."""

    regime_name: str
    regime: RegimeValues
    counts: CorpusCounts

    @staticmethod
    def of(regimes: dict[str, RegimeValues], counts: CorpusCounts) -> "Verdict":
        """Choose the regime to judge by."""
        name = headline(regimes)
        return Verdict(name, regimes[name], counts)

    @property
    def low(self) -> str:
        """The quantity that the perplexity is at least: the exact value where there is one."""
        values = self.regime.values
        return EXACT if EXACT in values else headline_bound("upper", self.regime.draws).name

    @property
    def high(self) -> str:
        """The quantity that the perplexity is at most."""
        return EXACT if EXACT in self.regime.values else ELBO_K

    @property
    def depends_on_luck(self) -> bool:
        """Tell whether one bank of orderings decides: nothing shows how lucky its draw was."""
        regime = self.regime
        return regime.draws == "bank" and regime.num_banks < 2 and EXACT not in regime.values

    @property
    def doubts_tube(self) -> str:
        """Say why TUBE, where it is the lower end of the perplexity, cannot make the ARM win."""
        tail = self.regime.tail
        if self.low == EXACT:
            return ""
        if self.regime.draws == "bank":
            return "TUBE of banks bounds the banks' mean, not the model"
        if tail is not None and tail["warning"] is not None:
            return "TUBE rests on too few blocks to be trusted (see the warning)"
        return ""

    def difference(self, name: str) -> Measured | None:
        """Return log p - log p_ARM by one quantity, with its paired error."""
        return self.regime.values.get(difference_name(name, ARM))

    @cached_property
    def p_values(self) -> dict[Winner, float]:
        """Return the one-sided p-values against "this one is not better"; NaN if unknown."""
        low, high = self.difference(self.low), self.difference(self.high)
        return {"arm": p_value(low, sign=-1), "model": p_value(high, sign=1)}

    @cached_property
    def winner(self) -> Winner | None:
        """Name who is better: its 95% interval of the difference is on its side of zero."""
        if self.depends_on_luck:
            return None
        if self.p_values["arm"] < LEVEL and not self.doubts_tube:
            return "arm"
        return "model" if self.p_values["model"] < LEVEL else None

    @property
    def is_known(self) -> bool:
        """Tell whether there is an error to judge by, at either end of the bracket."""
        return not all(map(math.isnan, self.p_values.values()))

    def comparison(self) -> Comparison | None:
        """Describe the test for ``results.json``; None without an ARM."""
        if ARM not in self.regime.values:
            return None
        by_high = self.winner == "model" or self.low not in self.regime.values
        decisive = self.high if by_high else self.low
        difference = self.difference(decisive)
        nats = math.nan if difference is None else difference.nats_per_token
        margin = math.nan if difference is None else difference.margin
        known = math.isfinite(nats) and math.isfinite(margin)
        return {
            "regime": self.regime_name,
            "winner": self.winner,
            "by": decisive,
            "nats_per_token": finite(nats),
            "ci95": [nats - margin, nats + margin] if known else None,
            "p_arm_is_better": finite(self.p_values["arm"]),
            "p_model_is_better": finite(self.p_values["model"]),
        }

    # The sentence

    @property
    def model(self) -> str:
        """Name the block model."""
        told = Regime.parse(self.regime_name)
        return "any-order model" if told == ANY_ORDER else f"block model ({told.title})"

    def sentence(self) -> str:
        """Compare with the ARM, or give the bracket where there is none."""
        if ARM not in self.regime.values:
            return f"The {self.model}'s perplexity is {self._bracket()}; {_NO_ARM}"
        arm = ppl_text(self.regime.ppl(ARM))
        if self.winner == "arm":
            return (
                f"The ARM wins: its perplexity {arm} is below the {self.model}'s, which is "
                f"{self._bound(self.low, 'at least')} {self._margin(self.low)}."
            )
        if self.winner == "model":
            return (
                f"The {self.model} wins: its perplexity is {self._bound(self.high, 'at most')}, "
                f"below the ARM's {arm} {self._margin(self.high)}."
            )
        values = f"the {self.model}'s perplexity is {self._bracket()}, the ARM's {arm}"
        if not self.is_known:
            return f"No winner: {self._text()} cannot tell how far chance goes; {values}."
        if self.depends_on_luck:
            return f"No winner: {_LUCK}; {values}."
        if self.doubts_tube and self.p_values["arm"] < LEVEL:
            return f"No winner: {self.doubts_tube}; {values}."
        if self.low == EXACT:
            values += f" {self._margin(EXACT)}"
        return f"Not distinguishable: {values}; {self._why_not()}."

    def _why_not(self) -> str:
        if self.low == EXACT:
            return "the 95% interval of the difference holds zero"
        if self.low not in self.regime.values:
            return "TUBE needs two orderings or more"
        return "the bracket holds it, or comes within the error of it"

    def _bracket(self) -> str:
        if self.low == EXACT:
            return self._bound(EXACT, "")
        at_most = self._bound(self.high, "at most")
        if self.low not in self.regime.values:
            return at_most
        return f"{self._bound(self.low, 'at least')} and {at_most}"

    def _bound(self, name: str, relation: str) -> str:
        ppl = ppl_text(self.regime.ppl(name))
        if name == EXACT:
            return f"{ppl} exactly"
        banks = self.regime.num_banks
        of_what = f" of {banks} banks" if banks > 1 else " of one bank"
        of_what = of_what if self.regime.draws == "bank" else ""
        return f"{relation} {ppl} in expectation ({ESTIMATORS[name].title}{of_what})"

    def _text(self) -> str:
        """Say how much text there is."""
        if self.counts.documents is None:
            return counted(self.counts.sequences, "sequence")
        return counted(self.counts.documents, "document")

    def _margin(self, name: str) -> str:
        """Write the difference in nats per token, which is what is tested, with its 95% margin."""
        difference = self.difference(name)
        if difference is None or not math.isfinite(difference.nats_per_token):
            return "(infinitely far)"
        told = f"{abs(difference.nats_per_token):.4f}"
        if math.isfinite(difference.margin):
            told += f" +- {difference.margin:.4f}"
        return f"({told} nats per token apart{self._over(difference)})"

    def _over(self, difference: Measured) -> str:
        banks, worth = self.regime.num_banks, difference.error.degrees + 1
        if banks > 1:
            return f" over {self._text()} and {banks} banks"
        if difference.error.method != "documents":
            of_one = " of one document" if self.counts.documents == 1 else ""
            return f" along {counted(self.counts.sequences, 'sequence')}{of_one}"
        if worth >= FEW_DOCUMENTS:
            return f" over {self._text()}"
        return f" over only {self._text()}, with the information of {worth:.0f} of one size"


_NO_ARM = "there is no ARM to compare it with."
_LUCK = "one bank of orderings cannot tell how lucky it was (protocol.num_banks, exact values can)"


def p_value(difference: Measured | None, sign: int) -> float:
    """Test "the difference does not have this sign"; what is infinite needs no error."""
    if difference is None:
        return math.nan
    nats = sign * difference.nats_per_token
    return float(nats < 0) if math.isinf(nats) else difference.error.one_sided_p(nats)
