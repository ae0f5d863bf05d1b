"""Text to token ids and back: bytes, or the tokenizer of a published model."""

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from tube_lightning.data.chats import Messages, apply_template

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

AUTO = "auto"
"""The name of whichever embedded tokenizer fits."""
DEMO = "demo"
"""The name of the embedded tokenizer."""
_PADDED_TO, _MOST_PADDING = 64, 0.01
"""Vocabularies are padded to a multiple of it, by at most this share of them."""
DEMO_TOKENIZER_FILE = Path(__file__).parent / "demo_text" / "tokenizer.json"
DEMO_END = "<|endoftext|>"
"""The token that ends a document in the embedded tokenizer."""

TokenIds = Sequence[int] | Int64[np.ndarray, " tokens"] | Int64[Tensor, " tokens"]


class Encoded(NamedTuple):
    """The ids of a text, and how many of its bytes belong to each.

    Every byte belongs to one of them, unless there are none: some tokenizers drop white space.
    """

    ids: Int64[np.ndarray, " tokens"]
    num_bytes: Int64[np.ndarray, " tokens"]


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

    def encode(self, text: str) -> Encoded:
        """Return the ids of a text, and its bytes by id."""

    def decode(self, ids: TokenIds) -> str:
        """Return the text of ids."""


class ByteTokenizer:
    r"""The bytes of UTF-8; byte 0, which text does not contain, ends a document.

    >>> ByteTokenizer().encode("é!").ids.tolist()
    [195, 169, 33]
    >>> ByteTokenizer().decode([195, 33])
    '\ufffd!'
    """

    name = "byte"
    vocab_size = 256
    eos_id = 0
    bos_id = None
    mask_id = None

    def encode(self, text: str) -> Encoded:
        """Return the bytes of a text; a NUL would end the document, so it is refused."""
        position = text.find("\0")
        if position >= 0:
            raise ValueError(
                f"text: expected no NUL character (byte 0 ends a document), got one at {position}"
            )
        ids = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
        return Encoded(ids, np.ones_like(ids))

    def decode(self, ids: TokenIds) -> str:
        """Return the text of bytes; what is not UTF-8 becomes the replacement character."""
        values = np.array(_as_list(ids), dtype=np.int64)
        outside = values[(values < 0) | (values > 255)]
        if outside.size:
            raise ValueError(f"ids: expected bytes in 0..255, got {outside[0]}")
        return values.astype(np.uint8).tobytes().decode(errors="replace")


class PretrainedTokenizer:
    """A tokenizer of the `tokenizers` library, and its special ids."""

    def __init__(
        self,
        name: str,
        backend: "Tokenizer",
        *,
        eos_id: int | None,
        bos_id: int | None = None,
        mask_id: int | None = None,
        chat: Callable[[Messages], str] | None = None,
    ) -> None:
        self.name, self.chat = name, chat
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self.eos_id, self.bos_id, self.mask_id = eos_id, bos_id, mask_id
        self._backend = backend

    @classmethod
    def from_transformers(
        cls, name: str, tokenizer: "PreTrainedTokenizerFast"
    ) -> "PretrainedTokenizer":
        """Take a fast tokenizer of `transformers`; its wrapper complains about long documents.

        Where it names no BOS or EOS (BERT's), its CLS and SEP stand in, as in the MDLM code.
        """
        return cls(
            name,
            tokenizer.backend_tokenizer,
            eos_id=_first_id(tokenizer.eos_token_id, tokenizer.sep_token_id),
            bos_id=_first_id(tokenizer.bos_token_id, tokenizer.cls_token_id),
            mask_id=_first_id(tokenizer.mask_token_id),
            chat=partial(apply_template, tokenizer) if tokenizer.chat_template else None,
        )

    @classmethod
    def embedded(cls) -> "PretrainedTokenizer":
        """Read the tokenizer of the embedded models: byte-level BPE of the demo's training text."""
        from tokenizers import Tokenizer

        backend = Tokenizer.from_file(str(DEMO_TOKENIZER_FILE))
        return cls(DEMO, backend, eos_id=backend.token_to_id(DEMO_END))

    def encode(self, text: str) -> Encoded:
        """Return the ids of a text, without special tokens around it.

        An id has the bytes from the beginning of its piece of text to the next one's: white space
        that a tokenizer drops belongs to the token before, or to the first, and a character that
        is cut into several tokens to the last of them.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.int64)
        starts = np.array([start for start, _ in encoding.offsets], dtype=np.int64)
        return Encoded(ids, _split_bytes(text, starts))

    def decode(self, ids: TokenIds) -> str:
        """Return the text of ids, special tokens spelled out."""
        return str(self._backend.decode(_as_list(ids), skip_special_tokens=False))


def load_tokenizer(source: str | PathLike[str]) -> TextTokenizer:
    """Return the tokenizer ``byte`` or ``demo``, that of a local folder, or that of a hub id.

    Code that comes with a tokenizer is never run: one that has some is read from its
    ``tokenizer.json``.
    """
    if source == ByteTokenizer.name:
        return ByteTokenizer()
    if source == DEMO:
        return PretrainedTokenizer.embedded()
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # slow to import

    folder = Path(source).expanduser()
    where = folder if folder.exists() else source
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except Exception as error:  # the hub's client lets its network stack's errors through
        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(where)
        except Exception:  # the first reason is the better one
            raise FileNotFoundError(_not_found(source, folder, error)) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(
            f"{source}: expected a fast tokenizer (tokenizer.json), got {type(tokenizer).__name__}"
        )
    return PretrainedTokenizer.from_transformers(str(source), tokenizer)


def fitting_tokenizer(tokenizer: TextTokenizer | str, vocab_size: int) -> TextTokenizer:
    """Load a tokenizer by its name, and refuse one that does not fit a model of so many tokens.

    "auto" is the one that comes with the package and fits.
    """
    if tokenizer == AUTO:
        return _embedded_tokenizer(vocab_size)
    if isinstance(tokenizer, str):
        tokenizer = load_tokenizer(tokenizer)
    check_fits(tokenizer, vocab_size)
    return tokenizer


def _embedded_tokenizer(vocab_size: int) -> TextTokenizer:
    embedded = (ByteTokenizer(), PretrainedTokenizer.embedded())
    for tokenizer in embedded:
        if _fits(tokenizer, vocab_size):
            return tokenizer
    known = " or ".join(f"{t.vocab_size:,} ({t.name})" for t in embedded)
    raise ValueError(
        f"tokenizer: expected a name, a folder or a hub id, got {AUTO!r}, for a model of "
        f"{vocab_size:,} tokens; those that come with this package have {known}"
    )


def check_fits(tokenizer: TextTokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer whose ids are not those of a model, its mask counted or not."""
    if not _fits(tokenizer, vocab_size):
        raise ValueError(
            f"tokenizer: expected {vocab_size - 1} tokens like the model's, or {vocab_size} with "
            f"its mask token, got {tokenizer.vocab_size} of {tokenizer.name}"
        )


def _fits(tokenizer: TextTokenizer, vocab_size: int) -> bool:
    """Tell whether ids are a model's, which may have padded its vocabulary a little.

    >>> _fits(ByteTokenizer(), 257), _fits(ByteTokenizer(), 320)
    (True, False)
    """
    surplus = vocab_size - tokenizer.vocab_size
    padded = vocab_size % _PADDED_TO == 0 and 0 <= surplus <= _MOST_PADDING * vocab_size
    return surplus in (0, 1) or padded


def _split_bytes(text: str, starts: Int64[np.ndarray, " tokens"]) -> Int64[np.ndarray, " tokens"]:
    """Count the bytes from each of these characters to the next; the first begins at 0.

    Where a tokenizer adds a space and trims it again, that space seems to begin after the next
    piece: it begins with it, so that no byte belongs to two of them.
    """
    if not starts.size:
        return starts
    characters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    widths = 1 + (characters >= 0x80) + (characters >= 0x800) + (characters >= 0x10000)
    edges = np.concatenate([[0], widths.cumsum()])
    bytes_before = edges[np.minimum.accumulate(starts[::-1])[::-1]]
    bytes_before[0] = 0
    return np.diff(bytes_before, append=edges[-1])


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
        f"{source}: expected 'byte', 'demo', a folder with a tokenizer or a model hub id; no such "
        f"local folder, and none from the model hub ({reason})"
    )
