"""Scores on disk: one parquet part for each finished batch, there before it is counted.

A part has one row for each sequence, block and regime, and holds all that the estimators need:
whoever has the parts can do without the network.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.rundir import finished_file

_PREFIX, _SUFFIX = "batch_", ".parquet"
_METADATA_KEY = b"tube_lightning"


@dataclass(frozen=True, eq=False)
class RegimeScores:
    """What one regime gives for each block, in nats."""

    scores: Float64[Tensor, "batch blocks orderings"]
    """log p(x | order), one for each iid ordering"""
    exact: Float64[Tensor, "batch blocks"] | None = None
    """log p(x)"""
    exact_elbo: Float64[Tensor, "batch blocks"] | None = None
    """E[log p(x | order)]"""
    continuous_elbo: Float64[Tensor, "batch blocks seeds"] | None = None
    """one-draw estimates of the continuous-time ELBO (any-order regime only)"""
    log_psi: Mapping[str, Float64[Tensor, "batch blocks"]] | None = None
    """log psi of each surrogate that does not depend on the orderings: pi, arm, arm_ft"""


@dataclass(frozen=True, eq=False)
class BlockScores:
    """All that the estimators need to know about the blocks of some sequences."""

    sequences: Int64[Tensor, " batch"]
    num_tokens: Int64[Tensor, "batch blocks"]
    """scored tokens; 0 for blocks after the end of a document"""
    regimes: Mapping[str, RegimeScores]
    seconds: float = 0.0
    """how long the scoring took"""

    def to(self, device: torch.device) -> "BlockScores":
        """Return the scores on a device; the sequences' ids stay where they are."""

        def moved(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.to(device)

        regimes = {
            name: RegimeScores(
                regime.scores.to(device),
                moved(regime.exact),
                moved(regime.exact_elbo),
                moved(regime.continuous_elbo),
                {psi: value.to(device) for psi, value in (regime.log_psi or {}).items()},
            )
            for name, regime in self.regimes.items()
        }
        return replace(self, num_tokens=self.num_tokens.to(device), regimes=regimes)


class ScoreFiles:
    """The parts of a run: ``folder/batch_000012.parquet`` is there if and only if it is whole."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def finished(self) -> list[int]:
        """List the batches on disk."""
        names = (path.name for path in self.folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        numbers = (name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in names)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def write(self, batch: int, scores: BlockScores) -> None:
        """Write one batch: whole, or not at all."""
        with finished_file(self._path(batch)) as unfinished:
            pq.write_table(
                _as_table(scores),
                unfinished,
                compression="zstd",
                use_dictionary=False,
                write_page_checksum=True,  # a flipped bit would be another score
            )

    def read(self, batch: int) -> BlockScores:
        """Read one batch back, bit for bit."""
        path = self._path(batch)
        try:
            return _from_table(pq.read_table(path, page_checksum_verification=True))
        except (
            pa.ArrowException,
            OSError,
            LookupError,
            TypeError,
            ValueError,
            RuntimeError,
        ) as error:
            raise ValueError(
                f"{path}: expected scores that evaluate.py wrote, got {error}; "
                "remove the file and evaluate again: only this batch is recomputed"
            ) from error

    def read_all(self) -> Iterator[BlockScores]:
        """Read the batches on disk, one after the other."""
        return (self.read(batch) for batch in self.finished())

    def _path(self, batch: int) -> Path:
        return self.folder / f"{_PREFIX}{batch:06}{_SUFFIX}"


def _as_table(scores: BlockScores) -> pa.Table:
    """Lay out as one row for each sequence, block and regime."""
    batch, blocks = scores.num_tokens.shape
    names = list(scores.regimes)
    columns: dict[str, Any] = {
        "sequence": np.repeat(scores.sequences.cpu().numpy(), blocks * len(names)),
        "block": np.tile(np.repeat(np.arange(blocks, dtype=np.int32), len(names)), batch),
        "regime": names * (batch * blocks),
        "num_tokens": np.repeat(
            scores.num_tokens.cpu().numpy().astype(np.int32).ravel(), len(names)
        ),
    }
    fields = [_fields(regime) for regime in scores.regimes.values()]
    for name in {name: None for field in fields for name in field}:
        columns[name] = _column([field.get(name) for field in fields])
    metadata = {_METADATA_KEY: json.dumps({"seconds": scores.seconds})}
    return pa.table(columns).replace_schema_metadata(metadata)


def _fields(regime: RegimeScores) -> dict[str, Tensor]:
    """Name the tensors of a regime as the columns are."""
    named = {f"psi_{name}": value for name, value in (regime.log_psi or {}).items()}
    parts = {
        "scores": regime.scores,
        "exact": regime.exact,
        "exact_elbo": regime.exact_elbo,
        "continuous_elbo": regime.continuous_elbo,
    }
    return {name: value for name, value in parts.items() if value is not None} | named


def _column(values: list[Tensor | None]) -> pa.Array:
    """Interleave the regimes of a column: null where a regime has no value."""
    there = next(value for value in values if value is not None)
    blank = torch.full_like(there, torch.nan)
    stacked = torch.stack([blank if value is None else value for value in values], dim=2).cpu()
    missing = np.tile([value is None for value in values], there.shape[0] * there.shape[1])
    rows = stacked.flatten(0, 2).numpy()
    if rows.ndim == 1:
        return pa.array(rows, mask=missing)
    flat = pa.array(rows.ravel())
    offsets = pa.array(np.arange(len(rows) + 1) * rows.shape[1], pa.int32())
    return pa.ListArray.from_arrays(offsets, flat, mask=pa.array(missing))


def _from_table(table: pa.Table) -> BlockScores:
    """Undo ``_as_table``."""
    names = list(dict.fromkeys(table["regime"].to_pylist()))
    blocks = int(table["block"].to_numpy().max()) + 1
    shape = (-1, blocks, len(names))

    def column(name: str, regime: int) -> Tensor | None:
        values = table[name].combine_chunks()
        mine = values.take(pa.array(np.arange(regime, len(values), len(names))))
        if mine.null_count:
            return None
        is_list = pa.types.is_list(mine.type)
        flat = torch.from_numpy((mine.flatten() if is_list else mine).to_numpy().copy())
        return flat.view(len(mine) // blocks, blocks, *((-1,) if is_list else ()))

    surrogates = [name for name in table.column_names if name.startswith("psi_")]
    plain = {"scores", "exact", "exact_elbo", "continuous_elbo"} & set(table.column_names)

    def regime(number: int) -> RegimeScores:
        psi = {name.removeprefix("psi_"): column(name, number) for name in surrogates}
        values: dict[str, Any] = {name: column(name, number) for name in plain}
        return RegimeScores(**values, log_psi={k: v for k, v in psi.items() if v is not None})

    sequence = table["sequence"].to_numpy().reshape(shape)[:, 0, 0].astype(np.int64)
    num_tokens = table["num_tokens"].to_numpy().reshape(shape)[:, :, 0].astype(np.int64)
    return BlockScores(
        sequences=torch.from_numpy(sequence),
        num_tokens=torch.from_numpy(num_tokens),
        regimes={name: regime(number) for number, name in enumerate(names)},
        seconds=json.loads(table.schema.metadata[_METADATA_KEY])["seconds"],
    )
