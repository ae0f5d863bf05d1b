"""The demo text: Python's own documentation, so that nothing is downloaded.

A document is a topic of ``help()`` or the docstrings of a module of the standard library. Three
splits, by the SHA-256 of "demo" and the document's name:

- held out: topics and top-level modules of 1,000 to 6,000 bytes whose hash starts with a byte below
  96: many short documents, none of which is a large part of the text. They are embedded
  (``demo_text/heldout.jsonl``, from Python 3.11), so that everyone evaluates on the same text.
- validation: the same kind, from 96 to 135. What is chosen, is chosen here.
- training: everything else that ships with the running Python, so it differs a little between
  releases; ``TokenSequences.sha256`` tells which it was.

Documents quote each other at length (the topic ``compound`` holds nine others), so a split by name
alone would leak. A training paragraph that has a run of 50 characters in common with a held-out or
validation document is therefore left out, and so is a validation paragraph with one of a held-out
document. White space is made uniform before texts are compared.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path
from typing import Literal

from tube_lightning.data.packing import cut_documents, pack
from tube_lightning.data.python_text import Document, python_documents
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.tokenizers import TextTokenizer, fitting_tokenizer, load_tokenizer

Split = Literal["train", "validation", "heldout"]

HELDOUT_FILE = Path(__file__).parent / "demo_text" / "heldout.jsonl"
_HELDOUT_BELOW = 96  # of the 256 values of a byte
_VALIDATION_BELOW = 136
_SHORT = range(1_000, 6_001)
_WINDOW = 50
_PARAGRAPH_START = re.compile(r"(?<=\n\n)(?!\n)")


def demo_documents(split: Split) -> tuple[Document, ...]:
    """Return the documents of a split: topics by name, then modules by path."""
    makers = {"train": _training, "validation": _validation, "heldout": _heldout}
    if split not in makers:
        raise ValueError(f"split: expected one of {', '.join(makers)}, got {split!r}")
    return makers[split]()


def demo_sequences(
    split: Split,
    length: int = 128,
    *,
    tokenizer: TextTokenizer | str = "demo",
    vocab_size: int | None = None,
    max_sequences: int | None = None,
    per_document: bool = False,
) -> TokenSequences:
    """Cut a split of the demo text into sequences of tokens, packed or document by document."""
    if vocab_size is not None:
        tokenizer = fitting_tokenizer(tokenizer, vocab_size)
    elif isinstance(tokenizer, str):
        tokenizer = load_tokenizer(tokenizer)
    cut = cut_documents if per_document else pack
    texts = (document.text for document in demo_documents(split))
    return cut(texts, tokenizer, length, max_sequences=max_sequences, source=f"demo/{split}")


def select_heldout(documents: Iterable[Document]) -> list[Document]:
    """Choose the documents to hold out, by their names and sizes."""
    return [d for d in documents if _is_short_topic(d) and _hash(d.name) < _HELDOUT_BELOW]


@cache
def _heldout() -> tuple[Document, ...]:
    lines = HELDOUT_FILE.read_text(encoding="utf-8").splitlines()
    return tuple(Document(**json.loads(line)) for line in lines)


@cache
def _validation() -> tuple[Document, ...]:
    between = range(_HELDOUT_BELOW, _VALIDATION_BELOW)
    chosen = [d for d in python_documents() if _is_short_topic(d) and _hash(d.name) in between]
    return _without_quotes(chosen, _heldout())


@cache
def _training() -> tuple[Document, ...]:
    apart = (*_heldout(), *_validation())
    names = {document.name for document in apart}
    return _without_quotes((d for d in python_documents() if d.name not in names), apart)


def _is_short_topic(document: Document) -> bool:
    """Say whether a document is a topic or a top-level module, and of the size to keep apart."""
    return "." not in document.name and document.num_bytes in _SHORT


def _hash(name: str) -> int:
    return hashlib.sha256(f"demo {name}".encode()).digest()[0]


def _without_quotes(
    documents: Iterable[Document], apart: Iterable[Document]
) -> tuple[Document, ...]:
    """Leave out the paragraphs that quote others, and documents of which nothing is left."""
    windows = {window for document in apart for window in _windows(document.text)}
    kept = (Document(d.name, _without_windows(d.text, windows)) for d in documents)
    return tuple(document for document in kept if document.text)


def _windows(text: str) -> Iterator[str]:
    """Yield all runs of characters of one length, white space made uniform."""
    uniform = " ".join(text.split())
    return (uniform[i : i + _WINDOW] for i in range(len(uniform) - _WINDOW + 1))


def _without_windows(text: str, removed: Set[str]) -> str:
    """Return a text without the paragraphs that have one of these windows."""
    paragraphs = _PARAGRAPH_START.split(text)
    return "".join(part for part in paragraphs if removed.isdisjoint(_windows(part)))
