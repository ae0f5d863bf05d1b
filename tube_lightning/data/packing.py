"""Documents to token sequences: packed into one stream, or each in sequences of its own."""

import hashlib
import re
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.tokenizers import TextTokenizer

_TOKENS_A_BUFFER = 1 << 20
_WHITE_SPACE = re.compile(r"\s+")
_TOKEN = np.dtype([("id", np.int64), ("num_bytes", np.int32), ("document", np.int32)])
"""A token, the bytes of the text that it stands for, and the number of its document."""


def pack(
    documents: Iterable[str],
    tokenizer: TextTokenizer,
    length: int,
    *,
    max_sequences: int | None = None,
    append_eos: bool = True,
    source: str = "documents",
) -> TokenSequences:
    """Tokenise documents, join them with EOS after each, and cut the stream into sequences.

    Neither the number of cores nor the way documents arrive enters. The remainder that fills no
    sequence is dropped once, at the end of the stream, and counted in ``num_dropped``. Once
    ``max_sequences`` are full nothing more is read, and nothing counts as dropped.

    >>> from tube_lightning.data import ByteTokenizer
    >>> sequences = pack(["ab", "cde"], ByteTokenizer(), 3)
    >>> sequences.tokens.tolist(), sequences.num_dropped
    ([[97, 98, 0], [99, 100, 101]], 1)
    """
    _check_sizes(length, max_sequences, least=1)
    most = None if max_sequences is None else max_sequences * length
    text = _HashedText(documents)
    pieces = _encode_documents(text, tokenizer, _end(tokenizer, append_eos), source)
    stream, num_tokens = _join(_take_until(pieces, most))
    if num_tokens < length:
        raise ValueError(
            f"{source}: expected at least one full sequence of {length} tokens, "
            f"got {num_tokens} tokens in all: a shorter length= takes it, or "
            "data.per_document=true, which fills the last sequence of each document up"
        )
    num_dropped = num_tokens % length
    if most is not None and num_tokens >= most:
        num_tokens, num_dropped = most, 0
    rows = stream[: num_tokens - num_dropped].reshape(-1, length)
    return _make_sequences(rows, source, tokenizer, num_dropped, text)


def cut_documents(
    documents: Iterable[str],
    tokenizer: TextTokenizer,
    length: int,
    *,
    max_sequences: int | None = None,
    append_eos: bool = True,
    source: str = "documents",
) -> TokenSequences:
    """Tokenise documents, and give each sequences of its own; the last of each is padded.

    A sequence of one token is dropped and counted in ``num_dropped``: its first token is given, so
    nothing is left to score. Once there are ``max_sequences`` nothing more is read.

    >>> from tube_lightning.data import ByteTokenizer
    >>> sequences = cut_documents(["a", "bcde", "f"], ByteTokenizer(), 3, append_eos=False)
    >>> sequences.tokens.tolist(), sequences.num_dropped
    ([[98, 99, 100]], 3)
    >>> sequences = cut_documents(["a", "bcde"], ByteTokenizer(), 3)
    >>> sequences.tokens.tolist(), sequences.lengths.tolist()
    ([[97, 0, 0], [98, 99, 100], [101, 0, 0]], [2, 3, 2])
    """
    _check_sizes(length, max_sequences, least=2)
    end = _end(tokenizer, append_eos)
    rows: list[np.ndarray] = []
    num_dropped = 0
    text = _HashedText(documents)
    for row in _windows(_encode_documents(text, tokenizer, end, source), length):
        if row.size < 2:
            num_dropped += row.size
            continue
        rows.append(row)
        if len(rows) == max_sequences:
            break
    if not rows:
        raise ValueError(f"{source}: expected a document of at least 2 tokens, got none")
    padded = np.zeros((len(rows), length), dtype=_TOKEN)
    for number, row in enumerate(rows):
        padded[number, : row.size] = row
        padded[number, row.size :]["document"] = row[0]["document"]
    lengths = torch.tensor([row.size for row in rows])
    return _make_sequences(padded, source, tokenizer, num_dropped, text, lengths)


class _HashedText:
    """Documents, how large they are, and the hash of all of them once the last is read.

    Words are what white space parts, as lm-eval counts them.
    """

    def __init__(self, documents: Iterable[str]) -> None:
        self._documents = documents
        self.sha256: str | None = None
        self.num_bytes = self.num_words = 0

    def __iter__(self) -> Iterator[str]:
        digest = hashlib.sha256()
        for document in self._documents:
            encoded = document.encode(errors="surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little"))
            digest.update(encoded)
            self.num_bytes += len(encoded)
            self.num_words += len(_WHITE_SPACE.split(document))
            yield document
        self.sha256 = digest.hexdigest()


def _make_sequences(
    rows: np.ndarray,
    source: str,
    tokenizer: TextTokenizer,
    num_dropped: int,
    text: _HashedText,
    lengths: Int64[Tensor, " sequences"] | None = None,
) -> TokenSequences:
    """Take the fields of tokens apart."""

    def field(name: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows[name]))

    return TokenSequences(
        field("id"),
        source,
        tokenizer.name,
        num_dropped,
        lengths,
        token_bytes=field("num_bytes"),
        documents=field("document"),
        text_sha256=text.sha256,
        decode=tokenizer.decode,
        eos_id=tokenizer.eos_id,
        text_bytes=text.num_bytes,
        text_words=text.num_words,
    )


def _check_sizes(length: int, max_sequences: int | None, *, least: int) -> None:
    if length < least:
        plural = "s" * (least > 1)
        raise ValueError(
            f"length: expected at least {least} token{plural} a sequence, got {length}"
        )
    if max_sequences is not None and max_sequences < 1:
        raise ValueError(f"max_sequences: expected at least 1, got {max_sequences}")


def _end(tokenizer: TextTokenizer, append_eos: bool) -> Int64[np.ndarray, " tokens"]:
    """Return what ends a document."""
    if not append_eos:
        return np.empty(0, dtype=np.int64)
    if tokenizer.eos_id is None:
        raise ValueError(
            f"append_eos: the tokenizer {tokenizer.name} has no end-of-document token; pass False"
        )
    return np.array([tokenizer.eos_id], dtype=np.int64)


def _encode_documents(
    documents: Iterable[str],
    tokenizer: TextTokenizer,
    end: Int64[np.ndarray, " end"],
    source: str,
) -> Iterator[np.ndarray]:
    """Yield the tokens of each document, as records; at least one document is expected."""
    number = -1
    for number, document in enumerate(documents):
        try:
            encoded = tokenizer.encode(document)
        except ValueError as error:
            raise ValueError(f"{source}: document {number}: {error}") from error
        tokens = np.zeros(encoded.ids.size + end.size, dtype=_TOKEN)
        tokens["id"] = np.concatenate([encoded.ids, end])
        tokens["num_bytes"][: encoded.ids.size] = encoded.num_bytes
        tokens["document"] = number
        yield tokens
    if number < 0:
        raise ValueError(f"{source}: expected at least one document, got none")


def _take_until(pieces: Iterable[np.ndarray], most: int | None) -> Iterator[np.ndarray]:
    """Yield pieces until they hold so many tokens."""
    num_tokens = 0
    for piece in pieces:
        yield piece
        num_tokens += piece.size
        if most is not None and num_tokens >= most:
            return


def _windows(pieces: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    for piece in pieces:
        yield from (piece[start : start + length] for start in range(0, piece.size, length))


def _join(
    pieces: Iterable[np.ndarray],
) -> tuple[np.ndarray, int]:
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
    buffers.append(np.concatenate([*pending, np.empty(0, dtype=_TOKEN)]))
    num_tokens = sum(buffer.size for buffer in buffers)
    stream = np.empty(num_tokens, dtype=_TOKEN)
    end = num_tokens
    while buffers:
        buffer = buffers.pop()
        stream[end - buffer.size : end] = buffer
        end -= buffer.size
    return stream, num_tokens
