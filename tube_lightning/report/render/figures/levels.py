"""The regime that curves are of, and the levels that they are compared with."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from tube_lightning.bounds import Bound, Terms, elbo_k, terms_of
from tube_lightning.metrics import Quantity, arm_quantities, exact_quantities
from tube_lightning.regimes import ANY_ORDER, Regime
from tube_lightning.scores import ARM, RegimeView


@dataclass(frozen=True)
class Levels:
    """One regime: how many orderings it has, and what is the same at every number of them."""

    regime: Regime
    num_orderings: int
    surrogates: tuple[str, ...]
    elbo_k: Quantity
    """of all orderings"""
    exact: Quantity | None
    arm: Quantity | None

    @staticmethod
    def of(regime: Regime, view: RegimeView) -> "Levels":
        """Find the levels that a regime has."""
        num_orderings = view.regime.scores.shape[-1]
        return Levels(
            regime,
            num_orderings,
            tuple(view.surrogates),
            elbo_k=of_first(num_orderings, elbo_k),
            exact=exact_quantities()[0] if view.regime.exact is not None else None,
            arm=arm_quantities([ARM])[0] if ARM in view.arms else None,
        )

    @property
    def reference(self) -> Quantity:
        """The exact value if there is one, else ELBO_K of all orderings."""
        return self.elbo_k if self.exact is None else self.exact

    @property
    def reference_title(self) -> str:
        """Name the reference in a sentence."""
        return "ELBO$_K$" if self.exact is None else "exact value"

    @property
    def quantities(self) -> list[Quantity]:
        """List the levels."""
        return [level for level in (self.elbo_k, self.exact, self.arm) if level is not None]


def of_first(number: int, bound: Bound[..., Any]) -> Quantity:
    """Take a bound of the first so many orderings."""
    return Quantity(f"{bound.__name__}_{number}", partial(_read_first, number, bound))


def _read_first(number: int, bound: Bound[..., Any], view: RegimeView) -> Tensor | Terms:
    values: Tensor | Terms = terms_of(bound)(view.regime.scores[..., :number])
    return values


def figure_regime(names: Iterable[str]) -> Regime | None:
    """Choose the regime of the curves: any order, or else the first in which orderings matter."""
    random = [regime for regime in map(Regime.parse, names) if regime.is_random]
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
