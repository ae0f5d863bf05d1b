r"""Undo the tokenisation that a benchmark's text comes with, so that models see ordinary text.

Where a document of the set is one line of a file, it ends as one: nothing else keeps the lines of
the zero-shot sets apart, which get no end-of-document token.
"""

import re

_SPACE_BEFORE = re.compile(r" ([,.;:!?])(?=\s|$)")
_CLITIC = re.compile(r" ('\w+)")
_ENGLISH_CLITIC = re.compile(r"(?<=\w) ('(?:s|m|d|re|ve|ll))\b")  # other words may be quoted
_NEGATION = re.compile(r" (n't)\b")
_PLURAL_POSSESSIVE = re.compile(r"(?<=s) '(?=\s|$)")
_QUOTED = re.compile(r'" ([^"]+) "'), re.compile(r"' ([^']+) '")
_SINGLE_QUOTED = re.compile(r"(?<!\S)' ((?:[^']|'(?=\w))+?) ?'(?!\w)")
_BRACKETS = re.compile(r"([(\[]) ([^()\[\]]+) ([)\]])")
_OPENING, _CLOSING = re.compile(r"([(\[{]) "), re.compile(r" ([)\]}])")
_SCHEME = re.compile(r"(https?) : / / ")
_CURRENCY = re.compile(r"([$£]) ")
_AMOUNT = re.compile(r"([$£€#]) (?=\d)")
_PERCENT = re.compile(r"(?<=\d) %")
_JOINER = re.compile(r" @([-,.])@ ")
_BETWEEN_EQUALS = re.compile(r"(?<==) (?==)")
_ANY_NUMBER = re.compile(r"\bN\b")
_LINE_END = re.compile(r" *\n *")
_LATEX_QUOTES = re.compile(r"`` ?"), re.compile(r" ?''")
_STRAIGHT = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")


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


def detokenize_wikitext(line: str) -> str:
    r"""Join what WikiText cut off, and close up ``@-@``, ``@,@``, ``@.@`` and headings.

    >>> detokenize_wikitext(' The " 1 @,@ 000 @-@ ton " ship ( 1 @.@ 5 % ) didn \'t sink . ')
    'The "1,000-ton" ship (1.5%) didn\'t sink.\n'
    >>> detokenize_wikitext(" = = Early life = = ")
    '== Early life ==\n'
    """
    text = line.strip()
    if text.startswith("=") and text.endswith("="):
        text = _BETWEEN_EQUALS.sub("", text)
    return _join_words(_JOINER.sub(r"\1", text)) + "\n"


def detokenize_ptb(sentence: str) -> str:
    r"""Join clitics and amounts; ``N``, which stands for any number, becomes 1.

    ``<unk>`` stays: the word is not known, and no other text would be right.

    >>> detokenize_ptb(r" it did n't rise N % to $ N in the company 's <unk> and\/or bonds ")
    "it didn't rise 1% to $1 in the company's <unk> and/or bonds\n"
    """
    text = _ANY_NUMBER.sub("1", sentence.strip().replace("\\/", "/"))
    return _join_words(text) + "\n"


def detokenize_lambada(passage: str) -> str:
    r"""Make quotes straight and join what was cut off; a passage starts on a line of its own.

    >>> detokenize_lambada("`` i do n't know , '' he said .")
    '\n"i don\'t know," he said.'
    >>> detokenize_lambada("\u201cWhy?\u201d She\u2019d asked before")
    '\n"Why?" She\'d asked before'
    """
    text = _SPACE_BEFORE.sub(r"\1", passage.strip().translate(_STRAIGHT))
    text = _LATEX_QUOTES[0].sub('"', text)
    text = _LATEX_QUOTES[1].sub('"', text).replace("` ", "'")
    text = _NEGATION.sub(r"\1", text)
    return "\n" + _ENGLISH_CLITIC.sub(r"\1", text)


def detokenize_scientific_papers(article: str) -> str:
    r"""Join punctuation and brackets; the marks ``@xmath0`` and ``@xcite`` stay.

    >>> detokenize_scientific_papers("we set @xmath0 ( see @xcite ) . \n the model 's limit .")
    "we set @xmath0 (see @xcite).\nthe model's limit."
    """
    return _join_words(_LINE_END.sub("\n", article.strip()))


def _join_words(text: str) -> str:
    """Join punctuation, clitics, brackets, quotes and amounts to the words that they belong to."""
    text = _NEGATION.sub(r"\1", _CLITIC.sub(r"\1", text))
    text = _SPACE_BEFORE.sub(r"\1", text)
    text = _CLOSING.sub(r"\1", _OPENING.sub(r"\1", text))
    text = _PLURAL_POSSESSIVE.sub("'", text)
    text = _QUOTED[0].sub(r'"\1"', text)
    text = _SINGLE_QUOTED.sub(r"'\1'", text)
    return _PERCENT.sub("%", _AMOUNT.sub(r"\1", text))
