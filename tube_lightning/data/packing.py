"""Documents to token blocks: the whole stream, once, in order."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Int64

from tube_lightning.data.blocks import TokenBlocks
from tube_lightning.data.tokenizers import TextTokenizer

_TOKENS_A_BUFFER = 1 << 20


def pack(
    documents: Iterable[str],
    tokenizer: TextTokenizer,
    length: int,
    *,
    append_eos: bool = True,
    source: str = "documents",
) -> TokenBlocks:
    """Tokenise documents, join them with EOS after each, and cut the stream into sequences.

    Neither the number of cores nor the way documents arrive enters. The remainder that fills no
    sequence is dropped once, at the end of the stream, and counted in ``num_dropped``.

    >>> from tube_lightning.data import ByteTokenizer
    >>> blocks = pack(["ab", "cde"], ByteTokenizer(), 3)
    >>> blocks.tokens.tolist(), blocks.num_dropped
    ([[97, 98, 0], [99, 100, 101]], 1)
    """
    if length < 1:
        raise ValueError(f"length: expected at least 1 token a sequence, got {length}")
    if append_eos and tokenizer.eos_id is None:
        raise ValueError(
            f"append_eos: the tokenizer {tokenizer.name} has no end-of-document token; pass False"
        )
    end = [tokenizer.eos_id] if append_eos and tokenizer.eos_id is not None else []
    stream, num_tokens = _join(_encoded(documents, tokenizer, end, source))
    if num_tokens < length:
        raise ValueError(
            f"{source}: expected at least one full sequence of {length} tokens, "
            f"got {num_tokens} tokens in all"
        )
    num_kept = num_tokens - num_tokens % length
    tokens = torch.from_numpy(stream[:num_kept].reshape(-1, length))
    return TokenBlocks(tokens, source, tokenizer.name, num_tokens - num_kept)


def _encoded(
    documents: Iterable[str], tokenizer: TextTokenizer, end: list[int], source: str
) -> Iterator[Int64[np.ndarray, " tokens"]]:
    """Yield the tokens of each document; at least one document is expected."""
    number = -1
    for number, document in enumerate(documents):
        try:
            ids = tokenizer.encode(document)
        except ValueError as error:
            raise ValueError(f"{source}: document {number}: {error}") from error
        yield ids
        yield np.array(end, dtype=np.int64)
    if number < 0:
        raise ValueError(f"{source}: expected at least one document, got none")


def _join(
    pieces: Iterable[Int64[np.ndarray, " tokens"]],
) -> tuple[Int64[np.ndarray, " tokens"], int]:
    """Concatenate pieces and count their tokens.

    Python objects live for one buffer only, and each buffer is released as it is copied, so the
    peak is about the stream itself.
    """
    buffers: list[np.ndarray] = []
    pending: list[np.ndarray] = []
    num_pending = 0
    for piece in pieces:
        pending.append(piece)
        num_pending += piece.size
        if num_pending >= _TOKENS_A_BUFFER:
            buffers.append(np.concatenate(pending))
            pending, num_pending = [], 0
    buffers.append(np.concatenate([*pending, np.empty(0, dtype=np.int64)]))
    num_tokens = sum(buffer.size for buffer in buffers)
    stream = np.empty(num_tokens, dtype=np.int64)
    end = num_tokens
    while buffers:
        buffer = buffers.pop()
        stream[end - buffer.size : end] = buffer
        end -= buffer.size
    return stream, num_tokens
