"""Token blocks: one text, tokenised and cut into sequences of one length."""

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int64
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TokenBlocks:
    """One packed text, and where it came from.

    ``num_dropped`` counts the tokens at the end of the stream that fill no sequence. Two texts are
    the same for every model that reads them if and only if their ``sha256`` are.
    """

    tokens: Int64[Tensor, "sequences length"]
    source: str
    tokenizer: str
    num_dropped: int = 0

    def __post_init__(self) -> None:
        """Refuse blocks without a token."""
        if self.tokens.numel() == 0:
            shape = tuple(self.tokens.shape)
            raise ValueError(f"tokens: expected at least one, got shape {shape} from {self.source}")

    def __len__(self) -> int:
        """Count the sequences."""
        return self.tokens.shape[0]

    @property
    def length(self) -> int:
        """Count the tokens of one sequence."""
        return self.tokens.shape[1]

    @property
    def num_tokens(self) -> int:
        """Count the tokens of all sequences."""
        return self.tokens.numel()

    @cached_property
    def sha256(self) -> str:
        """Hash the shape, then the ids row by row, all as little-endian int64."""
        ids = np.ascontiguousarray(self.tokens.cpu().numpy(), dtype="<i8")
        digest = hashlib.sha256(struct.pack("<2q", *ids.shape))
        digest.update(ids.data)
        return digest.hexdigest()
