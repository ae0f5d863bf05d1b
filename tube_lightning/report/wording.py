"""How numbers are written, wherever the report writes them."""

import math

_LARGE = 1e6


def counted(number: int, thing: str) -> str:
    """Write a number of things.

    >>> counted(1, "sequence"), counted(49470, "token")
    ('1 sequence', '49,470 tokens')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def ppl_text(ppl: float | None, scale: float | None = None) -> str:
    """Write a perplexity in five significant digits, whatever its size.

    ``scale`` is the perplexity whose digits an error is to have.

    >>> ppl_text(17.5449), ppl_text(3.14159), ppl_text(49273.2), ppl_text(0.01234, scale=17.5)
    ('17.545', '3.1416', '49273', '0.012')
    >>> ppl_text(None), ppl_text(1234567.0), ppl_text(0.0)
    ('inf', '1.2346e+06', '0.0000')
    """
    if ppl is None or math.isinf(ppl):
        return "inf"
    size = ppl if scale is None else scale
    if size >= _LARGE:
        return f"{ppl:.4e}"
    whole_digits = len(str(int(size)))
    return f"{ppl:.{max(0, 5 - whole_digits)}f}"
