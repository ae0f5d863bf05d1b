"""Undo the tokenisation that a benchmark's text comes with, so that models see ordinary text."""

import re

_SPACE_BEFORE = re.compile(r" ([,.;:!?])(?=\s|$)")
_CLITIC = re.compile(r" ('\w+)")
_QUOTED = re.compile(r'" ([^"]+) "'), re.compile(r"' ([^']+) '")
_BRACKETS = re.compile(r"([(\[]) ([^()\[\]]+) ([)\]])")
_SCHEME = re.compile(r"(https?) : / / ")
_CURRENCY = re.compile(r"([$£]) ")


def detokenize_lm1b(sentence: str) -> str:
    """Join what LM1B's tokenizer cut off: punctuation, clitics, quotes, brackets, amounts.

    >>> print(detokenize_lm1b("He said , ' it was ( almost ) $ 5 ' . It 's not ."))
    He said, 'it was (almost) $5'. It's not.
    """
    text = _SCHEME.sub(r"\1://", sentence)
    text = _CLITIC.sub(r"\1", text)
    text = _SPACE_BEFORE.sub(r"\1", text)
    text = _QUOTED[0].sub(r'"\1"', text)
    text = _QUOTED[1].sub(r"'\1'", text)
    text = _BRACKETS.sub(r"\1\2\3", text)
    text = text.replace(" / ", "/")
    return _CURRENCY.sub(r"\1", text)
