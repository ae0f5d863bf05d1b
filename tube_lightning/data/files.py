"""Documents of local files: text, JSON lines, parquet and arrow."""

import glob
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tube_lightning.data.packing import pack
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.tokenizers import TextTokenizer, fitting_tokenizer, load_tokenizer

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

TABLE_SUFFIXES = (".jsonl", ".parquet", ".arrow")
DOCUMENT_SUFFIXES = (".txt", *TABLE_SUFFIXES)
_ROWS_A_BATCH = 1024
# How WikiText and LM1B name their text: wiki.test.raw, news.en.heldout-00000-of-00050.
_TEXT_NAME = re.compile(r"^[^.]+$|\.(raw|tokens)$|-\d{5}-of-\d{5}$")


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

    A ``.txt`` file is one document, or with ``lines`` one a line (blank lines are none).
    ``.jsonl``, ``.parquet`` and ``.arrow`` files have one document a row, in ``column``.
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
    files = [file for path in given for file in _matches(path)]
    for file in files:
        if suffixes and file_kind(file) not in suffixes:
            raise ValueError(f"{file}: expected a file ending in {', '.join(suffixes)}")
        if file.stat().st_size == 0:
            raise ValueError(f"{file}: the file is empty")
    return files


def file_kind(path: Path) -> str:
    """Return the suffix that says how a file is read: ``.txt`` also for well-known text names."""
    return ".txt" if _TEXT_NAME.search(path.name) else path.suffix


def name_files(files: Sequence[Path]) -> str:
    """Name files for a report."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def read_column(path: Path, column: str) -> Iterator[Any]:
    """Yield a column of a table, row by row; a row without a value is an error."""
    rows = _json_column(path, column) if path.suffix == ".jsonl" else _arrow_column(path, column)
    try:
        for row, value in enumerate(rows):
            if value is None:
                raise ValueError(f"{path}: row {row} has no value in the column {column!r}")
            yield value
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _matches(path: str | PathLike[str]) -> list[Path]:
    file = Path(path).expanduser()
    if file.is_file():
        return [file]
    if file.is_dir():
        raise ValueError(f"{file}: expected a file, got a folder; try {file / '*.txt'}")
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
        if not lines:
            yield path.read_bytes().decode()
            return
        with path.open(encoding="utf-8") as file:
            yield from (line.removesuffix("\n") for line in file if not line.isspace())
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _count_documents(path: Path, column: str, lines: bool) -> int:
    """Count the documents of a file: parquet says how many, others have to be read."""
    if path.suffix != ".parquet":
        return sum(1 for _ in _documents(path, column, lines))
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _json_column(path: Path, column: str) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}: expected an object a line, got {line!r:.40} in {number}")
            if column not in row:
                raise _missing_column(path, column, row)
            yield row[column]


def _arrow_column(path: Path, column: str) -> Iterator[Any]:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if column not in names:
                raise _missing_column(path, column, names)
            for batch in file.iter_batches(_ROWS_A_BATCH, columns=[column]):
                yield from batch[column].to_pylist()
        return
    with pa.memory_map(str(path)) as source:
        for batch in _arrow_batches(source):
            if column not in batch.schema.names:
                raise _missing_column(path, column, batch.schema.names)
            yield from batch[column].to_pylist()


def _arrow_batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """Read either layout of arrow: with an index, or the stream that `datasets` writes."""
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        yield from pa.ipc.open_stream(source)
        return
    yield from (file.get_batch(index) for index in range(file.num_record_batches))


def _missing_column(path: Path, column: str, there: Iterable[str]) -> ValueError:
    names = ", ".join(map(repr, there)) or "none"
    return ValueError(f"{path}: expected a column {column!r}, found {names}")


def _unreadable(path: Path, error: Exception) -> ValueError:
    reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ValueError(f"{path}: cannot be read as {file_kind(path).removeprefix('.')} ({reason})")
