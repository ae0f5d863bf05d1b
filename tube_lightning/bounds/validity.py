"""Which side of log p(x) a bound stands on, as data that tables can print."""

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from torch import Tensor

Side = Literal["lower", "upper"]

P = ParamSpec("P")
T_co = TypeVar("T_co", bound=Tensor, covariant=True)


@runtime_checkable
class Bound(Protocol[P, T_co]):
    """An estimator of log p(x) that knows its own guarantee.

    ``side`` is the side of log p(x) that its population value bounds. ``bound_preserving`` says
    whether the expectation of the estimator stays on that side at every number of orderings.
    """

    __name__: str
    side: Side
    bound_preserving: bool

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Evaluate the bound."""
        ...


@runtime_checkable
class Terms(Protocol):
    """What a bound is made of, where sums over many blocks should stay in log space."""

    def value(self) -> Tensor:
        """Put the terms together, in nats."""
        ...

    def averages(self) -> tuple[Tensor, Tensor]:
        """Return m and r with m + exp(r) - 1 the value: sums of exp(r) are taken in log space."""
        ...


M = TypeVar("M", bound=Terms)
M_co = TypeVar("M_co", bound=Terms, covariant=True)


class BoundOfTerms(Bound[P, Tensor], Protocol[P, M_co]):
    """A bound whose call gives the value, and whose ``terms`` give its parts."""

    @property
    def terms(self) -> Callable[P, M_co]:
        """The same bound before its parts are put together."""
        ...


def guarantee(
    side: Side, *, bound_preserving: bool
) -> Callable[[Callable[P, T_co]], Bound[P, T_co]]:
    """Attach a guarantee to the function that computes a bound."""

    def attach(function: Callable[P, T_co]) -> Bound[P, T_co]:
        bound = cast("Bound[P, T_co]", function)
        bound.side = side
        bound.bound_preserving = bound_preserving
        return bound

    return attach


def made_of_terms(
    side: Side, *, bound_preserving: bool
) -> Callable[[Callable[P, M]], BoundOfTerms[P, M]]:
    """Make a bound of the function that gives its terms."""

    def attach(terms: Callable[P, M]) -> BoundOfTerms[P, M]:
        @wraps(terms)
        def value(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            return terms(*args, **kwargs).value()

        bound: Any = guarantee(side, bound_preserving=bound_preserving)(value)
        bound.terms = terms
        bound.__signature__ = signature(terms).replace(return_annotation=Tensor)  # for help()
        return cast("BoundOfTerms[P, M]", bound)

    return attach


def terms_of(bound: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that gives a bound's terms if it has any, else the bound itself.

    >>> terms_of(elbo_k) is elbo_k
    True
    """
    if isinstance(bound, partial):
        return partial(terms_of(bound.func), *bound.args, **bound.keywords)
    return cast("Callable[..., Any]", getattr(bound, "terms", bound))
