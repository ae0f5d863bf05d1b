"""What a run shares with an ARM of another tokenizer: which blocks count, and the ARM's nats there.

One parquet file beside the parts, with a row for each sequence and block of the run. With it the
parts become those of the text that both models scored, byte by byte.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from tube_lightning.rundir import SHARED_TEXT_FILE, finished_file
from tube_lightning.scores import ARM, NOWHERE, BlockScores

_METADATA_KEY = b"tube_lightning"


@dataclass(frozen=True, eq=False)
class SharedText:
    """The blocks of some sequences on which both models are compared.

    ``is_shared`` tells whether a block counts; ``arm_nats`` is log p by the ARM of the block's
    bytes: of a piece of text that is several blocks, each has the share of its bytes. ``about`` is
    what it depends on.
    """

    sequences: Int64[Tensor, " sequences"]
    """sorted"""
    is_shared: Bool[Tensor, "sequences blocks"]
    arm_nats: Float64[Tensor, "sequences blocks"]
    about: Mapping[str, Any]

    def write(self, directory: Path) -> None:
        """Put it into a run's directory: whole, or not at all."""
        blocks = self.is_shared.shape[1]
        table = pa.table(
            {
                "sequence": self.sequences.repeat_interleave(blocks).numpy(),
                "is_shared": self.is_shared.flatten().numpy(),
                "arm_nats": self.arm_nats.flatten().numpy(),
            }
        ).replace_schema_metadata({_METADATA_KEY: json.dumps(dict(self.about))})
        with finished_file(directory / SHARED_TEXT_FILE) as unfinished:
            pq.write_table(table, unfinished, compression="zstd")

    @staticmethod
    def read(directory: Path) -> "SharedText | None":
        """Read it back; None if there is none."""
        path = directory / SHARED_TEXT_FILE
        if not path.exists():
            return None
        table = pq.read_table(path)
        sequences = torch.from_numpy(table["sequence"].to_numpy().copy()).unique()
        shape = (len(sequences), -1)
        return SharedText(
            sequences,
            torch.from_numpy(table["is_shared"].to_numpy().copy()).view(shape),
            torch.from_numpy(table["arm_nats"].to_numpy().copy()).view(shape),
            json.loads(table.schema.metadata[_METADATA_KEY]),
        )

    def narrow(self, parts: Iterable[BlockScores]) -> Iterator[BlockScores]:
        """Leave out, of every part, the blocks that are not shared; put the ARM beside the rest."""
        for part in parts:
            rows = torch.searchsorted(self.sequences, part.sequences)
            blocks = part.num_tokens.shape[1]
            kept = self.is_shared[rows, :blocks]
            yield replace(
                part,
                num_tokens=part.num_tokens.where(kept, 0),
                num_bytes=None if part.num_bytes is None else part.num_bytes.where(kept, 0),
                documents=None
                if part.documents is None
                else part.documents.where(kept[..., None], NOWHERE),
                arms={ARM: self.arm_nats[rows, :blocks]},
            )
