"""How numbers are written, wherever the report writes them."""


def counted(number: int, thing: str) -> str:
    """Write a number of things.

    >>> counted(1, "sequence"), counted(49470, "token")
    ('1 sequence', '49,470 tokens')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def ppl_text(ppl: float | None, scale: float | None = None) -> str:
    """Write a perplexity; small ones, as those of bytes, with more digits.

    ``scale`` is the perplexity whose digits an error is to have.

    >>> ppl_text(17.5449), ppl_text(3.14159), ppl_text(0.01234, scale=17.5), ppl_text(None)
    ('17.54', '3.1416', '0.01', 'inf')
    """
    if ppl is None:
        return "inf"
    return f"{ppl:.{4 if (ppl if scale is None else scale) < 10 else 2}f}"
