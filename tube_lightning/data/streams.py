"""Files as streams of bytes: plain, compressed, or the standard input."""

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

import pyarrow as pa

STANDARD_INPUT = Path("-")
_CODECS = {".gz": "gzip", ".zst": "zstd"}
_TEXT_SUFFIXES = (".txt", ".md")
# How WikiText and LM1B name their text: wiki.test.raw, news.en.heldout-00000-of-00050.
_TEXT_NAME = re.compile(r"^[^.]+$|\.(raw|tokens)$|-\d{5}-of-\d{5}$")


def file_kind(path: Path) -> str:
    """Return the suffix that says how a file is read, compressed or not; ``.txt`` for all text.

    >>> [file_kind(Path(name)) for name in ("a.jsonl.zst", "README.md", "wiki.test.raw", "-")]
    ['.jsonl', '.txt', '.txt', '.txt']
    """
    plain = path.with_suffix("") if path.suffix in _CODECS else path
    is_text = plain.suffix in _TEXT_SUFFIXES or _TEXT_NAME.search(plain.name)
    return ".txt" if is_text else plain.suffix


def name_suffixes(kinds: Sequence[str]) -> str:
    """List the endings of files of some kinds, for a message.

    >>> name_suffixes([".txt", ".parquet"])
    '.txt, .md, .parquet (text and JSON lines also with .gz, .zst)'
    """
    endings = [e for kind in kinds for e in (_TEXT_SUFFIXES if kind == ".txt" else (kind,))]
    return f"{', '.join(endings)} (text and JSON lines also with {', '.join(_CODECS)})"


def is_compressed(path: Path) -> bool:
    """Tell whether a file's name says so."""
    return path.suffix in _CODECS


@contextmanager
def open_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to be read from its beginning, decompressed."""
    if path == STANDARD_INPUT:
        yield io.BytesIO(_read_standard_input())
        return
    with pa.input_stream(str(path), compression=_CODECS.get(path.suffix)) as stream:
        yield stream


@cache
def _read_standard_input() -> bytes:
    """Read it once: nobody can read it again."""
    content = sys.stdin.buffer.read()
    if not content:
        raise ValueError(
            "-: the standard input is empty (of several processes only the first can read it: "
            "give a file)"
        )
    return content
