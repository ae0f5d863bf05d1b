"""An ARM of another tokenizer: it reads the same documents in its own windows.

It is no surrogate of TUBE, for it has no density of the block model's blocks. What can be compared
are sums over the bytes that both score.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from rich.progress import track
from torch import Tensor, nn

from tube_lightning.data import (
    NOT_SHARED,
    Atoms,
    TokenSequences,
    load_tokenizer,
    place_tokens,
    share_pieces,
)
from tube_lightning.evaluator import EvaluationData, sequence_roles
from tube_lightning.measure import SharedText
from tube_lightning.networks import AutoregressiveModel, model_identity
from tube_lightning.orderings import Role
from tube_lightning.terminal import bar_console

Places = Int64[np.ndarray, "_ _"]
"""Where each token of some sequences begins, and behind the last, where that ends."""


@dataclass(frozen=True)
class OtherARM:
    """The model, and the text in its tokens."""

    model: AutoregressiveModel
    text: TokenSequences
    checkpoint: str

    def describe(self) -> dict[str, Any]:
        """Say for the record which model it is, and how it reads."""
        return {
            "checkpoint": self.checkpoint,
            "tokenizer": self.text.tokenizer,
            "length": self.text.length,
        }


def read_in_other_tokens(
    model: AutoregressiveModel,
    checkpoint: str,
    tokenizer: str,
    data: Callable[..., TokenSequences],
    *,
    length: int,
    text: TokenSequences,
) -> OtherARM:
    """Cut the text into an ARM's own tokens, and make sure that it is the same text."""
    tokens = load_tokenizer(tokenizer)
    if tokens.vocab_size > model.vocab_size:
        raise ValueError(
            f"arm.tokenizer: expected at most {model.vocab_size} tokens, the ARM's, got "
            f"{tokens.vocab_size} of {tokens.name}"
        )
    if text.token_bytes is None:
        raise ValueError(
            f"arm.tokenizer: expected a text to read in other tokens, got token ids in "
            f"{text.source}"
        )
    limit = getattr(model, "max_length", None)
    windows = length if limit is None else min(length, limit)
    other = data(tokenizer=tokens, length=windows, vocab_size=tokens.vocab_size)
    if text.text_sha256 is not None and other.text_sha256 != text.text_sha256:
        raise ValueError(f"arm.tokenizer: expected the text {text.source}, got another in it")
    return OtherARM(model, other, checkpoint)


def share_text(
    data: EvaluationData, other: OtherARM, directory: Path, device: torch.device, *, show: bool
) -> SharedText:
    """Score the ARM's windows that hold what the run has scored, and find what both share.

    What an earlier run left is taken if it is of the same model, text and sequences.
    """
    sequences = np.array(sorted(data.sequences))
    about = {
        **other.describe(),
        "model": model_identity(other.model),
        "token_sha256": [data.text.sha256, other.text.sha256],
        "num_sequences": len(sequences),
    }
    known = SharedText.read(directory)
    if known is not None and known.about == about and about["model"]["weights_sha256"] is not None:
        return known
    places, their_places = place_tokens((data.text, other.text))
    blocks, is_counted = _block_atoms(data, places, sequences)
    windows = _overlapping(their_places, places[sequences])
    nats, scored = _score(other, windows, data.batch_size, device, show)
    here = their_places[windows]
    free = scored & (here[:, 1:-1] != here[:, :1])  # not half given, with a first one without bytes
    begins, ends = here[:, 1:-1][free], here[:, 2:][free]
    of_blocks, of_tokens = share_pieces(blocks, Atoms(begins, ends, ends > begins))
    taken, arm_nats = _spread(blocks, of_blocks, is_counted, nats[free], of_tokens)
    shared = SharedText(torch.from_numpy(sequences), taken, arm_nats, about)
    shared.write(directory)
    return shared


def _block_atoms(
    data: EvaluationData, places: Places, sequences: Int64[np.ndarray, " sequences"]
) -> tuple[Atoms, Bool[np.ndarray, "sequences blocks"]]:
    """Make an atom of the scored tokens of each block that has some, none of them half given."""
    text, size = data.text, data.block_size
    rows = torch.from_numpy(sequences)
    lengths = torch.full_like(rows, text.length) if text.lengths is None else text.lengths[rows]
    scored = (sequence_roles(lengths, text.length, size) == Role.SCORED).numpy()
    here = places[sequences]
    padding = scored.shape[1] * size - text.length
    begins = np.pad(here[:, :-1], ((0, 0), (0, padding))).reshape(scored.shape)
    ends = np.pad(here[:, 1:], ((0, 0), (0, padding))).reshape(scored.shape)
    half_given = (scored & (begins == here[:, :1, None])).any(axis=2)
    counted = scored.any(axis=2) & ~half_given
    first, last = scored.argmax(axis=2), size - 1 - scored[..., ::-1].argmax(axis=2)

    def at(values: np.ndarray, position: np.ndarray) -> np.ndarray:
        found = np.take_along_axis(values, position[..., None], axis=2)[..., 0]
        return np.asarray(found[counted])

    return Atoms(at(begins, first), at(ends, last), at(ends, last) > at(begins, last)), counted


def _overlapping(theirs: Places, ours: Places) -> Int64[np.ndarray, " windows"]:
    """List the windows that share a place with any of our sequences."""
    order = ours[:, 0].argsort()
    begins, ends = ours[order, 0], ours[order, -1]
    after = np.searchsorted(ends, theirs[:, 0], side="right")  # the first that ends behind it
    there = np.minimum(after, len(begins) - 1)
    return np.flatnonzero((after < len(begins)) & (begins[there] < theirs[:, -1]))


def _score(
    other: OtherARM,
    windows: Int64[np.ndarray, " windows"],
    batch_size: int,
    device: torch.device,
    show: bool,
) -> tuple[Float64[np.ndarray, "windows tokens"], Bool[np.ndarray, "windows tokens"]]:
    """Return log p of every token but the first, and which of them are of the text."""
    model, text = other.model, other.text
    if isinstance(model, nn.Module):
        model.to(device)
    rows = torch.from_numpy(windows).split(batch_size)
    shown = track(rows, "scoring the ARM", console=bar_console(), transient=True, disable=not show)
    nats = [model.token_log_probs(text.tokens[some].to(device)).cpu().double() for some in shown]
    lengths = torch.full((len(text),), text.length) if text.lengths is None else text.lengths
    scored = torch.arange(1, text.length) < lengths[torch.from_numpy(windows)][:, None]
    return torch.cat(nats).numpy(), scored.numpy()


def _spread(
    blocks: Atoms,
    of_blocks: Int64[np.ndarray, " atoms"],
    is_counted: Bool[np.ndarray, "sequences blocks"],
    nats: Float64[np.ndarray, " tokens"],
    of_tokens: Int64[np.ndarray, " tokens"],
) -> tuple[Bool[Tensor, "sequences blocks"], Float64[Tensor, "sequences blocks"]]:
    """Give every block of a piece the share of the ARM's nats that it has of the bytes."""
    inside, scored = of_blocks != NOT_SHARED, of_tokens != NOT_SHARED
    if not inside.any():
        raise ValueError("arm.tokenizer: expected bytes that both models score, got none")
    widths = blocks.end - blocks.first
    sizes = np.bincount(of_blocks[inside], widths[inside])
    sums = np.bincount(of_tokens[scored], nats[scored], len(sizes))
    shared = np.zeros(is_counted.shape, dtype=bool)
    shared[is_counted] = inside
    spread = np.zeros(is_counted.shape)
    pieces = of_blocks[inside]
    spread[shared] = sums[pieces] * widths[inside] / sizes[pieces]
    return torch.from_numpy(shared), torch.from_numpy(spread)
