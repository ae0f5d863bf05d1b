"""Samples on disk: one part file for each finished batch, merged into one file at the end."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tube_lightning.rundir import claim_directory
from tube_lightning.whole_files import finished_file, remove_unfinished

METADATA_KEY = "tube_lightning"
"""Where a parquet file of samples keeps their settings, as JSON."""
_COLUMNS = [("sequence", pa.int64()), ("tokens", pa.list_(pa.int32())), ("text", pa.string())]


class PartFiles:
    """The finished batches of a run: a killed run continues behind the last of them.

    ``settings`` are all that the samples depend on: parts of other settings are refused. ``origin``
    goes to the file with them. No file is ever half-written under its own name.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], origin: dict[str, Any]) -> None:
        self.folder = claim_directory(folder, settings)
        metadata = {METADATA_KEY: json.dumps(settings | origin, sort_keys=True)}
        self._schema = pa.schema(_COLUMNS, metadata=metadata)
        self.num_parts = 0
        while self._part(self.num_parts).exists():
            self.num_parts += 1

    def append(self, sequences: list[int], tokens: list[list[int]], texts: list[str]) -> None:
        """Write the next finished batch."""
        table = pa.table([sequences, tokens, texts], schema=self._schema)
        with finished_file(self._part(self.num_parts)) as unfinished:
            pq.write_table(table, unfinished)
        self.num_parts += 1

    def first_text(self) -> str:
        """Return the text of the first sequence."""
        return str(pq.read_table(self._part(0))["text"][0])

    def merge(self, output: Path) -> None:
        """Write all parts to one file, of the kind that its suffix says, and remove them."""
        remove_unfinished(output)
        with finished_file(output) as unfinished:
            WRITERS[output.suffix](unfinished, self._schema, self._tables())
        shutil.rmtree(self.folder)

    def _tables(self) -> Iterator[pa.Table]:
        for number in range(self.num_parts):
            yield pq.read_table(self._part(number)).cast(self._schema)

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:06}.parquet"


def _write_parquet(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    with pq.ParquetWriter(path, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _write_jsonl(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    del schema  # lines have no room for metadata
    with path.open("w", encoding="utf-8") as file:
        for table in tables:
            for row in table.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


WRITERS = {".parquet": _write_parquet, ".jsonl": _write_jsonl}
"""What a file of samples can be, by its suffix."""


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse a file that we cannot write, or may not."""
    if output.suffix not in WRITERS:
        raise ValueError(f"output: expected a name ending in {' or '.join(WRITERS)}, got {output}")
    if output.is_dir():
        raise ValueError(f"output: expected a file, got the folder {output}")
    if output.exists() and not overwrite:
        raise FileExistsError(
            f"output: {output} is there already: choose another, or overwrite=true"
        )
