"""Text to token ids and back: bytes, or the tokenizer of a published model."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TokenIds = Sequence[int] | Int64[np.ndarray, " tokens"] | Int64[Tensor, " tokens"]


@runtime_checkable
class TextTokenizer(Protocol):
    """A reversible map between text and ids in 0..vocab_size - 1.

    A block model adds its mask as id ``vocab_size``, unless the tokenizer has a mask of its own
    (``mask_id``, which then is one of the ``vocab_size`` ids). No special token is added to a text.
    """

    @property
    def name(self) -> str:
        """Say which tokenizer this is, as `load_tokenizer` understands it."""

    @property
    def vocab_size(self) -> int:
        """Count the ids, special tokens of the tokenizer included."""

    @property
    def eos_id(self) -> int | None:
        """Return the id that ends a document."""

    @property
    def bos_id(self) -> int | None:
        """Return the id that starts a sequence."""

    @property
    def mask_id(self) -> int | None:
        """Return the id of the tokenizer's own mask."""

    def encode(self, text: str) -> Int64[np.ndarray, " tokens"]:
        """Return the ids of a text."""

    def decode(self, ids: TokenIds) -> str:
        """Return the text of ids."""


class ByteTokenizer:
    r"""The bytes of UTF-8; byte 0, which text does not contain, ends a document.

    >>> ByteTokenizer().encode("é!").tolist()
    [195, 169, 33]
    >>> ByteTokenizer().decode([195, 33])
    '\ufffd!'
    """

    name = "byte"
    vocab_size = 256
    eos_id = 0
    bos_id = None
    mask_id = None

    def encode(self, text: str) -> Int64[np.ndarray, " tokens"]:
        """Return the bytes of a text; a NUL would end the document, so it is refused."""
        position = text.find("\0")
        if position >= 0:
            raise ValueError(
                f"text: expected no NUL character (byte 0 ends a document), got one at {position}"
            )
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: TokenIds) -> str:
        """Return the text of bytes; what is not UTF-8 becomes the replacement character."""
        values = np.array(_as_list(ids), dtype=np.int64)
        outside = values[(values < 0) | (values > 255)]
        if outside.size:
            raise ValueError(f"ids: expected bytes in 0..255, got {outside[0]}")
        return values.astype(np.uint8).tobytes().decode(errors="replace")


class PretrainedTokenizer:
    """A fast tokenizer of `transformers`.

    Where a tokenizer names no BOS or EOS (BERT's), its CLS and SEP stand in, as in the MDLM code.
    """

    def __init__(self, name: str, tokenizer: "PreTrainedTokenizerFast") -> None:
        self.name = name
        self.vocab_size = len(tokenizer)
        self.eos_id = _first_id(tokenizer.eos_token_id, tokenizer.sep_token_id)
        self.bos_id = _first_id(tokenizer.bos_token_id, tokenizer.cls_token_id)
        self.mask_id = _first_id(tokenizer.mask_token_id)
        # The library underneath: the wrapper logs a complaint about every long document.
        self._backend = tokenizer.backend_tokenizer

    def encode(self, text: str) -> Int64[np.ndarray, " tokens"]:
        """Return the ids of a text, without special tokens around it."""
        return np.array(self._backend.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def decode(self, ids: TokenIds) -> str:
        """Return the text of ids, special tokens spelled out."""
        return str(self._backend.decode(_as_list(ids), skip_special_tokens=False))


def load_tokenizer(source: str | PathLike[str]) -> TextTokenizer:
    """Return the tokenizer ``byte``, that of a local folder, or that of a model hub id.

    Code that comes with a tokenizer is never run.
    """
    if source == ByteTokenizer.name:
        return ByteTokenizer()
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # slow to import

    folder = Path(source).expanduser()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder if folder.exists() else source, trust_remote_code=False
        )
    except Exception as error:  # the hub's client lets its network stack's errors through
        raise FileNotFoundError(_not_found(source, folder, error)) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(
            f"{source}: expected a fast tokenizer (tokenizer.json), got {type(tokenizer).__name__}"
        )
    return PretrainedTokenizer(str(source), tokenizer)


def check_fits(tokenizer: TextTokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer whose ids are not those of a model, its mask counted or not."""
    if tokenizer.vocab_size not in (vocab_size - 1, vocab_size):
        raise ValueError(
            f"tokenizer: expected {vocab_size - 1} tokens like the model's, or {vocab_size} with "
            f"its mask token, got {tokenizer.vocab_size} of {tokenizer.name}"
        )


def _as_list(ids: TokenIds) -> list[int]:
    return ids.tolist() if isinstance(ids, np.ndarray | Tensor) else list(ids)


def _first_id(*ids: int | list[int] | None) -> int | None:
    return next((i for i in ids if isinstance(i, int)), None)


def _not_found(source: str | PathLike[str], folder: Path, error: Exception) -> str:
    reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    if folder.is_dir():
        names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        return f"{folder}: expected a folder with a tokenizer, found {names} ({reason})"
    return (
        f"{source}: expected 'byte', a folder with a tokenizer or a model hub id; no such local "
        f"folder, and none from the model hub ({reason})"
    )
