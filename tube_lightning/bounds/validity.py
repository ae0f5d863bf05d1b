"""Which side of log p(x) an estimator stands on, as data that tables can print."""

from collections.abc import Callable
from typing import Literal, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from torch import Tensor

Side = Literal["lower", "upper"]

P = ParamSpec("P")
T_co = TypeVar("T_co", bound=Tensor, covariant=True)


@runtime_checkable
class Estimator(Protocol[P, T_co]):
    """An estimator of log p(x) that knows its own guarantee.

    ``side`` is the side of log p(x) that its population value bounds. ``bound_preserving`` says
    whether the expectation of the estimator stays on that side at every number of orderings.
    """

    __name__: str
    side: Side
    bound_preserving: bool

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Evaluate the estimator."""
        ...


def guarantee(
    side: Side, *, bound_preserving: bool
) -> Callable[[Callable[P, T_co]], Estimator[P, T_co]]:
    """Attach a guarantee to the function that computes an estimator."""

    def attach(function: Callable[P, T_co]) -> Estimator[P, T_co]:
        estimator = cast("Estimator[P, T_co]", function)
        estimator.side = side
        estimator.bound_preserving = bound_preserving
        return estimator

    return attach
