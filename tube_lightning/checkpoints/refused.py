"""Families that have no p(token | revealed set), or not of this kind: refused by name."""

import re

_UNIFORM = "its noise corrupts tokens and hides none, so that there is no revealed set"
_ALL_HIDDEN = "its blocks are only ever wholly hidden: there is no p(token | revealed set)"
_REASONS = (
    ("UDLM", "udlm", _UNIFORM),
    ("Duo", "duo", _UNIFORM),
    ("DiffusionGemma", "diffusion.?gemma", "it corrupts tokens and reads its own output again"),
    ("TiDAR", "ti ?dar", _ALL_HIDDEN),
    ("DFlash", "d ?flash", _ALL_HIDDEN),
    ("SEDD", "sedd", "its scores depend on a noise level, not on the revealed set alone"),
    ("Eso-LM", "eso.?lms?", "its predictions depend on the order of what is revealed, not on the "
     "revealed set alone"),
)  # fmt: skip
"""(name, pattern of whole words, reason)"""


def refusal(*names: object) -> str | None:
    """Say why a family is refused that one of some names belongs to; None if none does.

    >>> refusal("kuleshov-group/udlm-lm1b")[:28]
    'UDLM has no likelihood here:'
    >>> refusal("sdar", "SDARForCausalLM", None) is None
    True
    """
    for family, pattern, reason in _REASONS:
        whole = re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])", re.I)
        if any(whole.search(_split_words(str(name))) for name in names):
            return f"{family} has no likelihood here: {reason}"
    return None


def _split_words(name: str) -> str:
    """Cut between a small and a capital letter, and before a capitalised word.

    >>> _split_words("DiffusionGemmaForCausalLM"), _split_words("DUOModel")
    ('Diffusion Gemma For Causal LM', 'DUO Model')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
