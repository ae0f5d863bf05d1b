"""The documentation that ships with the running Python, as named documents.

Two kinds: the topics of ``help()`` (``pydoc_data.topics``), and the docstrings of the standard
library, one document a module. The files are parsed, never imported.
"""

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "pydoc_data"}


class Document(NamedTuple):
    """A text and what it is called: ``topic NAME`` or ``module DOTTED.NAME``."""

    name: str
    text: str

    @property
    def num_bytes(self) -> int:
        """Count the bytes of its text in UTF-8."""
        return len(self.text.encode())


@cache
def python_documents() -> tuple[Document, ...]:
    """Return all documents of this Python: topics by name, then modules by path."""
    return (*(Document(f"topic {name}", topics[name]) for name in sorted(topics)), *_modules())


def _modules() -> Iterator[Document]:
    """Yield the docstrings of the standard library, each where it stands first.

    Tests are left out, and what Python cannot parse.
    """
    seen: set[str] = set()
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        parts = path.relative_to(root).with_suffix("").parts
        if _SKIPPED_FOLDERS.isdisjoint(parts):
            new = [text for text in dict.fromkeys(_docstrings(path)) if text not in seen]
            seen.update(new)
            if new:
                yield Document(f"module {'.'.join(parts)}", "\n\n".join(new))


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
