"""The demo text: documentation that ships with every CPython, so that nothing is downloaded.

Held-out text: one topic of ``help()`` (``pydoc_data.topics``) in seven, those for which the SHA-256
of "demo" and the name starts with a byte below 38. Training text: the other topics, and the
docstrings of the standard library, one document a module.

Topics quote each other at length (``compound`` holds nine others) and docstrings quote topics, so a
split by name alone would leak: of the 50-character windows of the held-out text, 24% would occur in
the training text. A training paragraph that has one in common with it is therefore left out (1.6%
of the bytes), which leaves 0.1%. White space is made uniform before texts are compared.

Both texts differ slightly between Python releases; ``TokenSequences.sha256`` tells which it was.
"""

import ast
import hashlib
import re
import sysconfig
import warnings
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Literal

from tube_lightning.data.packing import cut_documents, pack
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.tokenizers import ByteTokenizer, check_fits

Split = Literal["train", "heldout"]
_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_HELDOUT_BELOW = 38  # of the 256 values of a byte: 14.8%
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "pydoc_data"}
_WINDOW = 50
_PARAGRAPH_START = re.compile(r"(?<=\n\n)(?!\n)")


def demo_documents(split: Split) -> list[str]:
    """Return the documents of a split, in an order that depends on their names only."""
    if split == "heldout":
        return [topics[name] for name in topic_names("heldout")]
    if split != "train":
        raise ValueError(f"split: expected 'train' or 'heldout', got {split!r}")
    heldout = {window for text in demo_documents("heldout") for window in _windows(text)}
    documents = [*(topics[name] for name in topic_names("train")), *stdlib_docstrings()]
    kept = (_without_windows(document, heldout) for document in documents)
    return [document for document in kept if document]


def demo_sequences(
    split: Split,
    length: int = 256,
    *,
    vocab_size: int | None = None,
    max_sequences: int | None = None,
    per_document: bool = False,
) -> TokenSequences:
    """Cut a split of the demo text into sequences of bytes, packed or document by document."""
    tokenizer = ByteTokenizer()
    if vocab_size is not None:
        check_fits(tokenizer, vocab_size)
    cut = cut_documents if per_document else pack
    documents = demo_documents(split)
    return cut(documents, tokenizer, length, max_sequences=max_sequences, source=f"demo/{split}")


def topic_names(split: Split) -> list[str]:
    """List the documentation topics of a split by name."""
    heldout = split == "heldout"
    return [name for name in sorted(topics) if _is_heldout(name) == heldout]


@cache
def stdlib_docstrings() -> tuple[str, ...]:
    """Read the docstrings of the standard library, each once, one document a module.

    The files are parsed, never imported. Tests are left out, and what Python cannot parse.
    """
    seen: set[str] = set()
    documents = []
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts):
            new = [text for text in dict.fromkeys(_docstrings(path)) if text not in seen]
            seen.update(new)
            documents.append("\n\n".join(new))
    return tuple(document for document in documents if document)


def _is_heldout(name: str) -> bool:
    return hashlib.sha256(f"demo{name}".encode()).digest()[0] < _HELDOUT_BELOW


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions, in the order of the file."""
    try:
        with warnings.catch_warnings(action="ignore"):  # old escapes in others' code
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in _definitions(tree):
        text = (ast.get_docstring(node) or "").strip()
        if text and "\0" not in text and _is_unicode(text):
            yield text


def _definitions(node: ast.AST) -> Iterator[_Definition]:
    """Yield a node and the definitions in it, without a look into expressions."""
    if isinstance(node, _Definition):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _definitions(child)


def _is_unicode(text: str) -> bool:
    """Say whether a text has no lone surrogates, which escapes can put there."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _windows(text: str) -> Iterator[str]:
    """Yield all runs of characters of one length, white space made uniform."""
    uniform = " ".join(text.split())
    return (uniform[i : i + _WINDOW] for i in range(len(uniform) - _WINDOW + 1))


def _without_windows(text: str, removed: Set[str]) -> str:
    """Return a text without the paragraphs that have one of these windows."""
    paragraphs = _PARAGRAPH_START.split(text)
    return "".join(part for part in paragraphs if removed.isdisjoint(_windows(part)))
