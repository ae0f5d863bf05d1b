"""95% intervals of values whose error is estimated from a number of sequences."""

import math

Z95 = 1.959964
_FEW = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582,
    2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
)  # fmt: skip
"""Student's quantiles for 1 to 10 degrees of freedom."""


def t95(num_sequences: int) -> float:
    """Return how many standard errors to both sides hold 95%: Student's t with n - 1 degrees.

    NaN for fewer than two sequences, which have no error. Beyond ten degrees of freedom it is the
    expansion of Abramowitz and Stegun (26.7.5), good to four digits.

    >>> [round(t95(n), 3) for n in (2, 10, 31, 194, 10**6)]
    [12.706, 2.262, 2.042, 1.972, 1.96]
    """
    degrees = num_sequences - 1
    if degrees < 1:
        return math.nan
    if degrees <= len(_FEW):
        return _FEW[degrees - 1]
    first = (Z95**3 + Z95) / 4
    second = (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96
    third = (3 * Z95**7 + 19 * Z95**5 + 17 * Z95**3 - 15 * Z95) / 384
    return Z95 + first / degrees + second / degrees**2 + third / degrees**3
