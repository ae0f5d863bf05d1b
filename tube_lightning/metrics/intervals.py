"""Quantiles and tail probabilities of Student's t: 95% intervals, and p-values."""

import math

from scipy.special import stdtr, stdtrit


def t95(degrees: float | int) -> float:
    """Return how many standard errors to both sides hold 95%: Student's t, any real degrees.

    NaN for degrees that are not positive: there is no error then, and no interval.

    >>> [round(t95(degrees), 3) for degrees in (1, 9, 30, 193, 10**6)]
    [12.706, 2.262, 2.042, 1.972, 1.96]
    >>> round(t95(4.5), 3)
    2.659
    """
    return float(stdtrit(degrees, 0.975)) if degrees > 0 else math.nan


def one_sided_p(estimate: float, standard_error: float, degrees: float | int) -> float:
    """Return P(T >= estimate / standard_error): the p-value against "it is zero or less".

    1 minus it is the p-value against "zero or more"; NaN where the error is.

    >>> round(one_sided_p(2.262, 1.0, 9), 3)
    0.025
    """
    if math.isnan(estimate + standard_error) or not degrees > 0:
        return math.nan
    if standard_error == 0:
        return 0.5 if estimate == 0 else float(estimate < 0)
    return float(stdtr(degrees, -estimate / standard_error))
