"""Scores: the records between the networks and the bounds, and their files.

One parquet part for each finished batch, there before it is counted, with one row for each sequence
and block and one column for each tensor of the records. It holds all that the estimators need:
whoever has the parts can do without the network.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float64, Int64, Shaped
from torch import Tensor

from tube_lightning.records import map_tensors, named_tensors
from tube_lightning.whole_files import finished_file

ARM, ARM_FT = "arm", "arm_ft"
"""The autoregressive models: the baseline, and one fine-tuned on the block model's samples."""
LEFT_TO_RIGHT = "pi"
"""The surrogate that is the model itself in one fixed order."""
LAYOUT = 4
"""Version of the files: runs of another one are not continued."""
_PREFIX, _SUFFIX = "batch_", ".parquet"
_METADATA_KEY = b"tube_lightning"
_SEQUENCES = "sequences"
_SEQUENCE, _BLOCK = "sequence", "block"
_NUM_TOKENS, _NUM_BYTES = "num_tokens", "num_bytes"
_DOCUMENTS, _TEXT = "documents", "text"
_OF_BLOCKS = (_SEQUENCE, _BLOCK, _NUM_TOKENS, _NUM_BYTES, _DOCUMENTS, _TEXT)
NOWHERE = -1
"""What stands for the document of a position that is not scored."""


@dataclass(frozen=True, eq=False)
class RegimeScores:
    """What one regime gives for each block, in nats."""

    scores: Float64[Tensor, "batch blocks orderings"]
    """log p(x | order), one for each iid ordering"""
    exact: Float64[Tensor, "batch blocks"] | None = None
    """log p(x)"""
    exact_elbo: Float64[Tensor, "batch blocks"] | None = None
    """E[log p(x | order)]"""
    left_to_right: Float64[Tensor, "batch blocks"] | None = None
    """log p(x | the fixed order from left to right): the surrogate psi_pi"""
    continuous_elbo: Float64[Tensor, "batch blocks seeds"] | None = None
    """one-draw estimates of the continuous-time ELBO (any-order regime only)"""


@dataclass(frozen=True, eq=False)
class RegimeView:
    """One regime of some blocks, beside what is the same in every regime."""

    regime: RegimeScores
    arms: Mapping[str, Float64[Tensor, "batch blocks"]]
    """log p(x) of the autoregressive models"""

    @property
    def surrogates(self) -> dict[str, Float64[Tensor, "batch blocks"]]:
        """The densities psi that do not depend on the sampled orderings, by name, in nats."""
        own = self.regime.left_to_right
        return {**({} if own is None else {LEFT_TO_RIGHT: own}), **self.arms}


@dataclass(frozen=True, eq=False)
class BlockScores:
    """All that the estimators need to know about the blocks of some sequences."""

    sequences: Int64[Tensor, " batch"]
    num_tokens: Int64[Tensor, "batch blocks"]
    """scored tokens; 0 for blocks after the end of a document"""
    regimes: Mapping[str, RegimeScores]
    arms: Mapping[str, Float64[Tensor, "batch blocks"]] = field(default_factory=dict)
    """log p(x) of the autoregressive models, arm and arm_ft"""
    num_bytes: Int64[Tensor, "batch blocks"] | None = None
    """bytes of the original text that belong to the scored tokens; None where unknown"""
    documents: Int64[Tensor, "batch blocks size"] | None = None
    """the document of each scored token, and -1 at other positions; None where unknown"""
    texts: tuple[tuple[str, ...], ...] | None = None
    """what the scored tokens of each block say; None where unknown"""
    seconds: float = 0.0
    """how long the scoring took"""

    def views(self) -> dict[str, RegimeView]:
        """Show each regime."""
        return {name: RegimeView(regime, self.arms) for name, regime in self.regimes.items()}

    def rows(self, some: slice) -> "BlockScores":
        """Take some of the sequences; the time stays with the first of them."""
        taken = map_tensors(lambda _, tensor: tensor[some], self)
        return replace(
            taken,
            texts=None if self.texts is None else self.texts[some],
            seconds=0.0 if some.start else self.seconds,
        )

    def first_orderings(self, number: int) -> "BlockScores":
        """Keep the first so many of the sampled orderings."""

        def first(regime: RegimeScores) -> RegimeScores:
            if number > (there := regime.scores.shape[-1]):
                raise ValueError(
                    f"num_orderings: expected at most the {there} that were scored, got {number}"
                )
            return replace(regime, scores=regime.scores[..., :number])

        return replace(self, regimes={name: first(r) for name, r in self.regimes.items()})

    def to(self, device: torch.device) -> "BlockScores":
        """Return the scores on a device; the sequences' ids stay where they are."""
        return map_tensors(
            lambda path, tensor: tensor if path == _SEQUENCES else tensor.to(device), self
        )


class OtherLayoutError(ValueError):
    """Scores of another version."""


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
                _write_columns(batch, scores),
                unfinished,
                compression="zstd",
                use_dictionary=False,
                write_page_checksum=True,  # a flipped bit would be another score
            )

    def read(self, batch: int) -> BlockScores:
        """Read one batch back, bit for bit."""
        path = self._path(batch)
        try:
            return _read_columns(batch, pq.read_table(path, page_checksum_verification=True))
        except OtherLayoutError as error:
            raise OtherLayoutError(f"{path}: {error}") from error
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

    def read_sequences(self, batch: int) -> Int64[Tensor, " batch"]:
        """Read only which sequences a batch has, in their order."""
        path = self._path(batch)
        try:
            column = pq.read_table(path, columns=[_SEQUENCE])[_SEQUENCE].to_numpy()
        except (pa.ArrowException, OSError, LookupError) as error:
            raise ValueError(
                f"{path}: expected scores that evaluate.py wrote, got {error}"
            ) from error
        return torch.from_numpy(column[np.diff(column, prepend=-1) != 0].astype(np.int64))

    def read_all(self) -> Iterator[BlockScores]:
        """Read the batches on disk, one after the other."""
        return (self.read(batch) for batch in self.finished())

    def _path(self, batch: int) -> Path:
        return self.folder / f"{_PREFIX}{batch:06}{_SUFFIX}"


def _write_columns(batch: int, scores: BlockScores) -> pa.Table:
    """Lay out as one row for each sequence and block; a tensor's path names its column."""
    num_sequences, blocks = scores.num_tokens.shape
    columns: dict[str, Any] = {
        _SEQUENCE: np.repeat(scores.sequences.cpu().numpy(), blocks),
        _BLOCK: np.tile(np.arange(blocks, dtype=np.int32), num_sequences),
        _NUM_TOKENS: scores.num_tokens.cpu().numpy().astype(np.int32).ravel(),
    }
    if scores.num_bytes is not None:
        columns[_NUM_BYTES] = scores.num_bytes.cpu().numpy().astype(np.int32).ravel()
    if scores.documents is not None:
        columns[_DOCUMENTS] = _write_column(scores.documents.to(torch.int32))
    if scores.texts is not None:
        columns[_TEXT] = pa.array([text for row in scores.texts for text in row], pa.string())
    for path, tensor in named_tensors({"arms": scores.arms, "regimes": scores.regimes}):
        columns[path] = _write_column(tensor)
    about = {"layout": LAYOUT, "batch": batch, "seconds": scores.seconds}
    metadata = {_METADATA_KEY: json.dumps(about)}
    return pa.table(columns).replace_schema_metadata(metadata)


def _write_column(tensor: Shaped[Tensor, "batch blocks *numbers"]) -> pa.Array:
    rows = tensor.cpu().flatten(0, 1).numpy()
    if rows.ndim == 1:
        return pa.array(rows)
    offsets = pa.array(np.arange(len(rows) + 1) * rows.shape[1], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(rows.ravel()))


def _read_columns(batch: int, table: pa.Table) -> BlockScores:
    """Undo ``_write_columns``."""
    metadata = json.loads(table.schema.metadata[_METADATA_KEY])
    if (layout := metadata.get("layout")) != LAYOUT:
        raise OtherLayoutError(
            f"expected layout {LAYOUT} of scores, got {layout or 'an older one'}, which another "
            "version of this package wrote; evaluate into another directory"
        )
    if metadata["batch"] != batch:
        raise ValueError(f"those of batch {metadata['batch']}")
    blocks = int(table[_BLOCK].to_numpy().max()) + 1

    def integers(name: str) -> Int64[Tensor, "batch blocks"]:
        values = table[name].to_numpy().reshape(-1, blocks).astype(np.int64)
        return torch.from_numpy(values)

    def tensor(name: str) -> Shaped[Tensor, "batch blocks *numbers"]:
        values = table[name].combine_chunks()
        if values.null_count:
            raise ValueError(f"no value in some rows of {name}")
        is_list = pa.types.is_list(values.type)
        flat = torch.from_numpy((values.flatten() if is_list else values).to_numpy().copy())
        return flat.view(len(values) // blocks, blocks, *((-1,) if is_list else ()))

    arms: dict[str, Tensor] = {}
    regimes: dict[str, dict[str, Any]] = {}
    for path in table.column_names:
        match path.split("."):
            case [name] if name in _OF_BLOCKS:
                continue
            case ["arms", name]:
                arms[name] = tensor(path)
            case ["regimes", regime, name]:
                regimes.setdefault(regime, {})[name] = tensor(path)
            case _:
                raise ValueError(f"an unknown column {path}")
    return BlockScores(
        sequences=integers(_SEQUENCE)[:, 0].clone(),
        num_tokens=integers(_NUM_TOKENS),
        regimes={name: RegimeScores(**values) for name, values in regimes.items()},
        arms=arms,
        num_bytes=integers(_NUM_BYTES) if _NUM_BYTES in table.column_names else None,
        documents=tensor(_DOCUMENTS).long() if _DOCUMENTS in table.column_names else None,
        texts=_read_texts(table[_TEXT], blocks) if _TEXT in table.column_names else None,
        seconds=metadata["seconds"],
    )


def _read_texts(column: pa.ChunkedArray, blocks: int) -> tuple[tuple[str, ...], ...]:
    texts = column.to_pylist()
    return tuple(tuple(texts[i : i + blocks]) for i in range(0, len(texts), blocks))
