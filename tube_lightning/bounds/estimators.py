"""The table of estimators: all that tables, figures, options and curves know about each.

Adding an estimator is its function, its line here, and its tests.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal

from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.bounds.cubo import cubo
from tube_lightning.bounds.elbo import elbo, elbo_k
from tube_lightning.bounds.isvgb import isvgb
from tube_lightning.bounds.tube import tube_loo, tube_split
from tube_lightning.bounds.tvo import tvo_of_resamples, tvo_upper
from tube_lightning.bounds.validity import Bound, Side
from tube_lightning.checks import check_whole_number
from tube_lightning.protocol import Draws


@dataclass(frozen=True)
class Setting:
    """An argument that an estimator leaves open: a whole number if its default is one."""

    name: str
    default: int | float
    least: int | float
    help: str

    @staticmethod
    def of(bound: Bound[..., Tensor], name: str, least: int | float, help: str) -> "Setting":
        """Describe an argument of a function, with the default that it has there."""
        return Setting(name, signature(bound).parameters[name].default, least, help)

    def validate(self, name: str, value: Any) -> int | float:  # noqa: ANN401 (what a user gave)
        """Return a value as its kind of number, or refuse one that means nothing."""
        if isinstance(self.default, int):
            check_whole_number(name, value, least=int(self.least))
            return int(value)
        if type(value) not in (int, float) or not self.least <= value < math.inf:
            raise ValueError(f"{name}: expected a number of at least {self.least}, got {value!r}")
        return float(value)


@dataclass(frozen=True)
class Estimator:
    """A line of the table."""

    name: str
    """in results.json, curves and options"""
    title: str
    """in legends and sentences"""
    bound: Bound[..., Tensor]
    """function of scores[..., orderings] and the settings; it knows its side and guarantee"""
    settings: tuple[Setting, ...] = ()
    column: str = ""
    """title of its column, with the settings' names in braces; by default the title"""
    columns_for: tuple[Draws, ...] = ("fresh", "bank")
    """where it has a column in the table"""
    fewest: int = 1
    """smallest number of orderings"""
    multiple: Callable[..., int] | None = None
    """function of the settings: the number of orderings must be a multiple"""
    on_a_bank: Literal["re-seeded", "whole", "continuous"] = "re-seeded"
    """what the paper's protocol makes of it: the mean over resamples of the bank, one value of the
    whole bank, or the ELBO in continuous time in its place"""
    of_resamples: Callable[..., Tensor] | None = None
    """function of (bank, places, settings): all resamples at once, where that is faster"""
    marker: str = "o"
    """in figures, if it promises nothing; bounds are bars"""

    @property
    def side(self) -> Side:
        """The side of log p(x) that its population value bounds."""
        return self.bound.side

    @property
    def bound_preserving(self) -> bool:
        """Whether its expectation keeps to that side with finitely many orderings."""
        return self.bound.bound_preserving

    def column_title(self, settings: "EstimatorSettings") -> str:
        """Write the title of its column."""
        return self.column.format(**settings.of(self)) if self.column else self.title

    def fits(self, num_orderings: int, settings: "EstimatorSettings") -> bool:
        """Tell whether so many orderings are enough, and a multiple of what it needs."""
        return num_orderings >= self.fewest and num_orderings % self.divisor(settings) == 0

    def divisor(self, settings: "EstimatorSettings") -> int:
        """Return what the number of orderings must be a multiple of."""
        return 1 if self.multiple is None else self.multiple(**settings.of(self))

    def with_settings(self, settings: "EstimatorSettings") -> Callable[..., Tensor]:
        """Return the bound as a function of scores alone."""
        chosen = settings.of(self)
        return partial(self.bound, **chosen) if chosen else self.bound

    def resampled(
        self,
        bank: Float64[Tensor, "batch blocks orderings"],
        places: Int64[Tensor, "reseeds batch blocks orderings"],
        settings: "EstimatorSettings",
    ) -> Float64[Tensor, "reseeds batch blocks"]:
        """Evaluate it on every resample of a bank, in nats."""
        if self.of_resamples is not None:
            return self.of_resamples(bank, places, **settings.of(self))
        return self.with_settings(settings)(bank.expand_as(places).gather(-1, places))


def _num_groups(pairs: int) -> int:
    return 2 * pairs


_NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Names are keys of files and configurations, and options of command lines."""
_TABLE = (
    Estimator(
        "cubo",
        "CUBO",
        cubo,
        settings=(Setting.of(cubo, "beta", 1, "exponent of CUBO, at least 1"),),
        column="CUBO_{beta:g}",
    ),
    Estimator(
        "tvo",
        "TVO",
        tvo_upper,
        settings=(Setting.of(tvo_upper, "partitions", 1, "grid points of TVO"),),
        of_resamples=tvo_of_resamples,
        marker="s",
    ),
    Estimator(
        "isvgb",
        "IS-VG-B",
        isvgb,
        settings=(Setting.of(isvgb, "pairs", 1, "pairs of means of IS-VG-B"),),
        fewest=2,
        multiple=_num_groups,
        marker="^",
    ),
    Estimator("tube", "TUBE", tube_loo, fewest=2, columns_for=("fresh",)),
    Estimator("tube_split", "TUBE", tube_split, fewest=2, columns_for=("bank",)),
    Estimator("elbo_k", "ELBO_K", elbo_k, on_a_bank="whole"),
    Estimator("elbo", "ELBO", elbo, on_a_bank="continuous"),
)
ESTIMATORS = {estimator.name: estimator for estimator in _TABLE}
"""The estimators by name. Tables have those that promise nothing first, then bounds."""


def register_estimator(estimator: Estimator) -> None:
    """Add a line to the table of this process."""
    names = [estimator.name, *(setting.name for setting in estimator.settings)]
    if estimator.name in ESTIMATORS or not all(map(_NAME.fullmatch, names)):
        raise ValueError(
            f"estimator: expected a new name of lower-case letters, digits and _, got {names}"
        )
    ESTIMATORS[estimator.name] = estimator


def headline_bound(side: Side, draws: Draws) -> Estimator:
    """Choose the bound that stands for its side in a bracket: the first that has a column.

    >>> [headline_bound("upper", draws).name for draws in ("fresh", "bank")]
    ['tube', 'tube_split']
    """
    return next(
        estimator
        for estimator in ESTIMATORS.values()
        if estimator.bound_preserving and estimator.side == side and draws in estimator.columns_for
    )


class EstimatorSettings(Mapping[str, int | float]):
    """What the estimators leave open, by names such as cubo_beta. The defaults are the paper's.

    >>> EstimatorSettings(cubo_beta=3.0)["cubo_beta"], EstimatorSettings()["isvgb_pairs"]
    (3.0, 2)
    """

    def __init__(self, **changes: object) -> None:
        """Refuse settings that there are not, and values that mean nothing."""
        known = dict(list_settings())
        if unknown := sorted(changes.keys() - known.keys()):
            raise ValueError(
                f"estimators: expected {', '.join(known)}, got {', '.join(unknown)}, "
                "of no estimator that is registered here"
            )
        self._values = {n: s.validate(n, changes.get(n, s.default)) for n, s in known.items()}

    def of(self, estimator: Estimator) -> dict[str, Any]:
        """Return the arguments of one estimator's function."""
        return {
            s.name: self._values.get(setting_name(estimator, s), s.default)  # or registered since
            for s in estimator.settings
        }

    def __getitem__(self, name: str) -> int | float:
        """Return one value."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """List the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count the settings."""
        return len(self._values)

    def __repr__(self) -> str:
        """Write it as it is made."""
        return f"EstimatorSettings({', '.join(f'{k}={v!r}' for k, v in self.items())})"


def setting_name(estimator: Estimator, setting: Setting) -> str:
    """Name a setting in configurations, options and files."""
    return f"{estimator.name}_{setting.name}"


def list_settings() -> Iterator[tuple[str, Setting]]:
    """List the settings of all estimators with their names."""
    for estimator in ESTIMATORS.values():
        yield from ((setting_name(estimator, setting), setting) for setting in estimator.settings)
