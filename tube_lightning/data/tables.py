"""Columns of tables in files: JSON lines, parquet and arrow."""

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tube_lightning.data.streams import file_kind, open_stream

TABLE_SUFFIXES = (".jsonl", ".parquet", ".arrow")
_ROWS_A_BATCH = 1024


def read_column(path: Path, column: str) -> Iterator[Any]:
    """Yield a column of a table, row by row; a row without a value is an error."""
    read = _json_column if file_kind(path) == ".jsonl" else _arrow_column
    try:
        for row, value in enumerate(read(path, column)):
            if value is None:
                raise ValueError(f"{path}: row {row} has no value in the column {column!r}")
            yield value
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


def _json_column(path: Path, column: str) -> Iterator[Any]:
    with open_stream(path) as file:
        for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8"), start=1):
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


def unreadable(path: Path, error: Exception) -> ValueError:
    """Say which file cannot be read, and why."""
    reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ValueError(f"{path}: cannot be read as {file_kind(path).removeprefix('.')} ({reason})")
