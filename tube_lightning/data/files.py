"""Documents of local files: text, JSON lines, parquet and arrow."""

import glob
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tube_lightning.data.packing import pack
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.streams import (
    STANDARD_INPUT,
    file_kind,
    is_compressed,
    name_suffixes,
    open_stream,
)
from tube_lightning.data.tables import TABLE_SUFFIXES, read_column, unreadable
from tube_lightning.data.tokenizers import TextTokenizer, fitting_tokenizer, load_tokenizer

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

DOCUMENT_SUFFIXES = (".txt", *TABLE_SUFFIXES)
_STREAMED = (".txt", ".jsonl")


def text_sequences(
    paths: Paths,
    tokenizer: TextTokenizer | str,
    length: int,
    *,
    column: str = "text",
    lines: bool = False,
    append_eos: bool = True,
    detokenize: Callable[[str], str] | None = None,
    vocab_size: int | None = None,
) -> TokenSequences:
    """Pack the documents of files into token sequences, each first put through ``detokenize``.

    With a model's ``vocab_size``, a tokenizer that does not fit it is refused.
    """
    documents = read_documents(paths, column=column, lines=lines)
    if detokenize is not None:
        documents = map(detokenize, documents)
    if vocab_size is not None:
        tokenizer = fitting_tokenizer(tokenizer, vocab_size)
    elif isinstance(tokenizer, str):
        tokenizer = load_tokenizer(tokenizer)
    source = name_files(find_files(paths))
    return pack(documents, tokenizer, length, append_eos=append_eos, source=source)


def read_documents(paths: Paths, *, column: str = "text", lines: bool = False) -> Iterator[str]:
    """Return the documents of files, one file after the other.

    A ``.txt`` or ``.md`` file is one document, or with ``lines`` one a line (blank lines are none);
    so is ``-``, the standard input. ``.jsonl``, ``.parquet`` and ``.arrow`` files have one document
    a row, in ``column``. Text and JSON lines may be compressed: ``.gz``, ``.zst``. A folder is all
    such files in it, sorted.
    """
    files = find_files(paths, DOCUMENT_SUFFIXES)
    return (text for path in files for text in _documents(path, column, lines))


def last_documents(
    paths: Paths, count: int, *, column: str = "text", lines: bool = False
) -> Iterator[str]:
    """Return the last documents of files, in their order; files before these are not read."""
    files = find_files(paths, DOCUMENT_SUFFIXES)
    first, num_documents = len(files), 0
    while first > 0 and num_documents < count:
        first -= 1
        num_documents += _count_documents(files[first], column, lines)
    kept = (text for path in files[first:] for text in _documents(path, column, lines))
    return islice(kept, max(0, num_documents - count), None)


def find_files(paths: Paths | None, suffixes: Sequence[str] = ()) -> list[Path]:
    """List the files of paths and patterns: these as given, the matches of a pattern sorted."""
    if paths is None:
        raise ValueError("data.path: expected a file, a pattern or a list of them, got none")
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not given:
        raise ValueError("paths: expected at least one file, got none")
    files = [file for path in given for file in _matches(path, suffixes)]
    for file in files:
        if suffixes and file_kind(file) not in suffixes:
            raise ValueError(f"{file}: expected a file ending in {name_suffixes(suffixes)}")
        if is_compressed(file) and file_kind(file) not in _STREAMED:
            raise ValueError(
                f"{file}: expected only {' and '.join(_STREAMED)} files to be compressed"
            )
        if file != STANDARD_INPUT and file.stat().st_size == 0:
            raise ValueError(f"{file}: the file is empty")
    return files


def name_files(files: Sequence[Path]) -> str:
    """Name files for a report."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _matches(path: str | PathLike[str], suffixes: Sequence[str]) -> list[Path]:
    file = Path(path).expanduser()
    if file.is_file() or file == STANDARD_INPUT:
        return [file]
    if file.is_dir():
        kinds = suffixes or DOCUMENT_SUFFIXES
        inside = sorted(found for found in file.rglob("*.*") if found.is_file())
        known = [f for f in inside if f.name[0] != "." and file_kind(f) in kinds]
        if not known:
            raise ValueError(
                f"{file}: expected a folder with files ending in {name_suffixes(kinds)}, "
                f"got {len(inside)} other files"
            )
        return known
    matches = sorted(Path(match) for match in glob.glob(str(file), recursive=True))
    if not matches:
        raise FileNotFoundError(f"{file}: no such file, and no file matches it as a pattern")
    return [match for match in matches if match.is_file()]


def _documents(path: Path, column: str, lines: bool) -> Iterator[str]:
    if file_kind(path) != ".txt":
        for row, value in enumerate(read_column(path, column)):
            if not isinstance(value, str):
                kind = type(value).__name__
                raise ValueError(f"{path}: expected text in {column!r}, got {kind} in row {row}")
            yield value
        return
    try:
        with open_stream(path) as file:
            if not lines:
                yield file.read().decode()
                return
            text = io.TextIOWrapper(file, encoding="utf-8")
            yield from (line.removesuffix("\n") for line in text if not line.isspace())
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def _count_documents(path: Path, column: str, lines: bool) -> int:
    """Count the documents of a file: parquet says how many, others have to be read."""
    if path.suffix != ".parquet":
        return sum(1 for _ in _documents(path, column, lines))
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
