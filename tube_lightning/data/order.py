"""Which sequences of a text come first, when not all of them are taken."""

from typing import Literal, get_args

Order = Literal["spread", "contiguous"]
"""All over the text, or from its beginning."""


def check_order(order: str) -> None:
    """Refuse what is no order."""
    if order not in get_args(Order):
        raise ValueError(f"order: expected one of {', '.join(get_args(Order))}, got {order!r}")


def sequence_order(count: int, order: Order) -> list[int]:
    """List the sequences of a text; the first of them are the ones that a part of it has.

    Neighbours are alike, so the first so many of a text say little of the rest. ``spread`` reverses
    the bits of a counter (van der Corput 1935): the first 2^k are spaced evenly, for every k, and
    more only add to them.

    >>> sequence_order(6, "spread"), sequence_order(3, "contiguous")
    ([0, 4, 2, 1, 5, 3], [0, 1, 2])
    """
    check_order(order)
    if order == "contiguous":
        return list(range(count))
    width = max(count - 1, 0).bit_length()
    reversed_bits = [0]
    for bit in range(width):
        reversed_bits += [place + (1 << (width - 1 - bit)) for place in reversed_bits]
    return [place for place in reversed_bits if place < count]
