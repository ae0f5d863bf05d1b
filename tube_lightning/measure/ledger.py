"""The nats of a corpus, by sequence and by document: sums, and errors that know who is alike."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.metrics import Measured, Quantity, TextSums, rate_errors
from tube_lightning.scores import NOWHERE, BlockScores, RegimeView

_MOST_APART = 64
"""Parts whose documents are kept apart before they are put together."""


class Pieces(NamedTuple):
    """Some sequences or documents: their numbers, in the text's order, and their sums."""

    numbers: Int64[Tensor, " pieces"]
    sums: TextSums

    @staticmethod
    def join(parts: Sequence["Pieces"]) -> "Pieces":
        """Put parts together, adding up what is of the same piece."""
        numbers, place = torch.cat([part.numbers for part in parts]).unique(return_inverse=True)
        nats = torch.cat([part.sums.nats for part in parts], dim=1)
        tokens = torch.cat([part.sums.tokens for part in parts])
        return Pieces(
            numbers, TextSums(_add_up(nats, place, numbers), _add_up(tokens, place, numbers))
        )


class Ledger:
    """Sums of quantities over parts of a corpus, and in the end their rates with errors.

    Values are in the order of the text whatever the order of the parts, and each total is rounded
    once: neither batches nor devices matter to it (errors round document by document).
    """

    def __init__(self, quantities: Iterable[Quantity]) -> None:
        self.quantities = list(quantities)
        self._sequences: list[Pieces] = []
        self._documents: list[Pieces] | None = []

    def update(self, view: RegimeView, part: BlockScores) -> None:
        """Count some sequences."""
        values = counted_values(self.quantities, view, part)
        sequences, documents = sum_pieces(values, part)
        self._sequences.append(sequences)
        if documents is None:
            self._documents = None
        elif self._documents is not None:
            self._documents.append(documents)
            if len(self._documents) > _MOST_APART:
                self._documents = [Pieces.join(self._documents)]

    def finish(self) -> dict[str, Measured]:
        """Divide the sums, with errors over documents or along the text."""
        sequences = Pieces.join(self._sequences).sums
        documents = Pieces.join(self._documents).sums if self._documents else None
        errors = rate_errors(sequences, documents)
        num_tokens = int(sequences.tokens.sum())
        return {
            quantity.name: Measured(total_nats(nats) / num_tokens, error, num_tokens)
            for quantity, nats, error in zip(self.quantities, sequences.nats, errors, strict=True)
        }


def counted_values(
    quantities: Sequence[Quantity], view: RegimeView, part: BlockScores
) -> Float64[Tensor, "quantities batch blocks"]:
    """Evaluate quantities, with zeros for blocks that are not counted; refuse what is no number."""
    values = torch.stack([quantity.values(view).double() for quantity in quantities])
    values = torch.where(part.num_tokens > 0, values, 0.0)
    if values.isnan().any():
        quantity, row, block = values.isnan().nonzero()[0].tolist()
        raise ValueError(
            f"{quantities[quantity].name}: expected a number, got nan in block {block} of "
            f"sequence {int(part.sequences[row])}"
        )
    return values


def sum_pieces(
    values: Float64[Tensor, "quantities batch blocks"], part: BlockScores
) -> tuple[Pieces, Pieces | None]:
    """Sum blocks by sequence, and by document where these are known."""
    sums = TextSums(values.sum(dim=2), part.num_tokens.sum(dim=1))
    documents = None if part.documents is None else _share_out(values, part)
    return Pieces(part.sequences, sums), documents


def _share_out(values: Float64[Tensor, "quantities batch blocks"], part: BlockScores) -> Pieces:
    """Sum blocks by document; one of several documents goes to each by its tokens."""
    documents = part.documents
    if documents is None:
        raise ValueError("documents: expected those of every token, got none")
    scored = documents != NOWHERE
    block = scored.flatten(0, 1).nonzero()[:, 0]
    pairs, tokens = torch.stack([block, documents[scored]]).unique(dim=1, return_counts=True)
    block, document = pairs
    shares = tokens.double() / part.num_tokens.flatten()[block]
    nats = values.flatten(1)[:, block] * shares
    return Pieces.join([Pieces(document, TextSums(nats, tokens))])


def _add_up(values: Tensor, place: Int64[Tensor, " items"], numbers: Tensor) -> Tensor:
    """Sum items that have the same place, along the last axis."""
    totals = values.new_zeros([*values.shape[:-1], len(numbers)])
    return totals.index_add(-1, place, values)


def total_nats(nats: Float64[Tensor, " sequences"]) -> float:
    """Add exactly, and round once; infinities of both signs are no number."""
    values = nats.tolist()
    if math.inf in values and -math.inf in values:
        return math.nan
    return math.fsum(values)
