"""Where the tensors of a file go in transformers' networks."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """Some rows of a file's tensor, and their place in a network's parameter."""

    target: str
    rows: slice = slice(None)
    place: tuple[int | slice, ...] = ()


Translate = Callable[[str], Sequence[Piece]]
"""Name of a tensor -> its pieces; none for what is never read."""

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
_NEVER_READ = re.compile(r".*\.(rotary_emb\.inv_freq|attn\.(masked_)?bias)")
"""Buffers that some versions of transformers saved."""


def same_name(name: str) -> Sequence[Piece]:
    """Take a tensor as it is."""
    return () if _NEVER_READ.fullmatch(name) else (Piece(name),)


def rename(*rules: tuple[str, str]) -> Translate:
    """Replace the first pattern that matches the beginning of a name."""
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def translate(name: str) -> Sequence[Piece]:
        for pattern, replacement in patterns:
            if pattern.match(name):
                return same_name(pattern.sub(replacement, name, count=1))
        return same_name(name)

    return translate


def stack_experts(width: int, otherwise: Translate = same_name) -> Translate:
    """Put experts of ``width``, which files have one by one, into the parameter of all of them."""

    def translate(name: str) -> Sequence[Piece]:
        found = _EXPERT.fullmatch(name)
        if found is None:
            return otherwise(name)
        experts, number, kind = found[1], int(found[2]), found[3]
        if kind == "down":
            return (Piece(f"{experts}.down_proj", place=(number,)),)
        half = slice(0, width) if kind == "gate" else slice(width, 2 * width)
        return (Piece(f"{experts}.gate_up_proj", place=(number, half)),)

    return translate
