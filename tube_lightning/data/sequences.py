"""Token sequences: one text, tokenised and cut into sequences of one length."""

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor


class AtMost(int):
    """A length that nobody asked for: the longest that will do.

    Text is cut into sequences of it; token ids that come in sequences keep a shorter one.
    """


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """One text as sequences of token ids, and where it came from.

    ``lengths`` counts the true tokens of each sequence, where documents were not packed: the rest
    of such a row is padding, id 0. Without it all tokens are true. ``num_dropped`` counts the
    tokens that were read but are in no sequence. ``token_bytes`` counts the bytes of the original
    text that belong to each token, and ``documents`` numbers the document that it is from; token
    ids read from files have neither. ``num_given`` counts the first tokens of each sequence that
    are given and not scored, a prompt; without it that is one. Two texts are the same for every
    model that reads them if and only if their ``sha256`` are; ``text_sha256`` is of the documents
    themselves, whatever the tokenizer (None where they are unknown, or were not all read).
    ``decode`` turns ids into text, ``eos_id`` ends a document. ``text_bytes`` and ``text_words``
    count what was read, before it was tokenised.
    """

    tokens: Int64[Tensor, "sequences length"]
    source: str
    tokenizer: str
    num_dropped: int = 0
    lengths: Int64[Tensor, " sequences"] | None = None
    token_bytes: Int32[Tensor, "sequences length"] | None = None
    documents: Int32[Tensor, "sequences length"] | None = None
    text_sha256: str | None = None
    decode: Callable[[Int64[Tensor, " tokens"]], str] | None = None
    num_given: Int64[Tensor, " sequences"] | None = None
    eos_id: int | None = None
    text_bytes: int | None = None
    text_words: int | None = None

    def __post_init__(self) -> None:
        """Refuse sequences without a token, and lengths that do not fit them."""
        if self.tokens.numel() == 0:
            shape = tuple(self.tokens.shape)
            raise ValueError(f"tokens: expected at least one, got shape {shape} from {self.source}")
        if self.lengths is not None:
            _check_lengths(self.tokens, self.lengths)
        if self.num_given is not None:
            _check_given(self.tokens, self.lengths, self.num_given)
        for name in ("token_bytes", "documents"):
            values: Tensor | None = getattr(self, name)
            if values is not None and values.shape != self.tokens.shape:
                raise ValueError(
                    f"{name}: expected one for each token, {tuple(self.tokens.shape)}, "
                    f"got {tuple(values.shape)}"
                )

    def __len__(self) -> int:
        """Count the sequences."""
        return self.tokens.shape[0]

    def first(self, count: int) -> "TokenSequences":
        """Return the text of the first sequences alone; what comes behind them is unknown to it."""
        parts = {
            name: values[:count]
            for name in ("tokens", "lengths", "token_bytes", "documents")
            if (values := getattr(self, name)) is not None
        }
        return replace(
            self, **parts, num_dropped=0, text_sha256=None, text_bytes=None, text_words=None
        )

    @property
    def length(self) -> int:
        """Count the tokens of one sequence, padding included."""
        return self.tokens.shape[1]

    @property
    def num_tokens(self) -> int:
        """Count the true tokens of all sequences."""
        return self.tokens.numel() if self.lengths is None else int(self.lengths.sum())

    @property
    def num_scored_bytes(self) -> int | None:
        """Count the bytes of all tokens but the given ones, the first of each sequence."""
        if self.token_bytes is None:
            return None
        given = (
            torch.ones(len(self), dtype=torch.int64) if self.num_given is None else self.num_given
        )
        scored = torch.arange(self.length) >= given[:, None]
        return int(self.token_bytes[scored].sum())

    @property
    def most_scored(self) -> int:
        """Count the scored tokens of the sequence that has most of them."""
        given = 1 if self.num_given is None else self.num_given
        lengths = torch.tensor([self.length]) if self.lengths is None else self.lengths
        return int((lengths - given).max())

    @cached_property
    def sha256(self) -> str:
        """Hash the shape, the ids row by row, then any lengths and numbers of given tokens.

        All are little-endian int64.
        """
        ids = _little_endian(self.tokens)
        digest = hashlib.sha256(struct.pack("<2q", *ids.shape))
        digest.update(ids.data)
        if self.lengths is not None:
            digest.update(_little_endian(self.lengths).data)
        if self.num_given is not None:
            digest.update(_little_endian(self.num_given).data)
        return digest.hexdigest()

    @cached_property
    def documents_sha256(self) -> str | None:
        """Hash the numbers of the tokens' documents, by which errors go; None where unknown."""
        if self.documents is None:
            return None
        return hashlib.sha256(_little_endian(self.documents.long()).data).hexdigest()


def _little_endian(values: Int64[Tensor, "..."]) -> np.ndarray:
    return np.ascontiguousarray(values.cpu().numpy(), dtype="<i8")


def _check_lengths(
    tokens: Int64[Tensor, "sequences length"], lengths: Int64[Tensor, " sequences"]
) -> None:
    num_sequences, length = tokens.shape
    if lengths.shape != (num_sequences,):
        raise ValueError(f"lengths: expected [{num_sequences}], got {tuple(lengths.shape)}")
    outside = lengths[(lengths < 1) | (lengths > length)]
    if outside.numel():
        raise ValueError(f"lengths: expected 1..{length} tokens, got {int(outside[0])}")
    padding = torch.arange(length, device=tokens.device) >= lengths[:, None]
    if tokens[padding].any():
        raise ValueError(
            f"tokens: expected id 0 after the end of a sequence, "
            f"got {int(tokens[padding & (tokens != 0)][0])}"
        )


def _check_given(
    tokens: Int64[Tensor, "sequences length"],
    lengths: Int64[Tensor, " sequences"] | None,
    num_given: Int64[Tensor, " sequences"],
) -> None:
    num_sequences, length = tokens.shape
    if num_given.shape != (num_sequences,):
        raise ValueError(f"num_given: expected [{num_sequences}], got {tuple(num_given.shape)}")
    outside = num_given[(num_given < 1) | (num_given >= (length if lengths is None else lengths))]
    if outside.numel():
        raise ValueError(
            f"num_given: expected at least 1 and fewer than a sequence has, got {int(outside[0])}"
        )
