"""What the rest of the package sees of a model."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


class BlockRun(NamedTuple):
    """Neighbouring rows of one block."""

    sequence: int
    start: int
    num_rows: int


@dataclass(frozen=True)
class NoisyRows:
    """Blocks with some of their tokens hidden: one row is one revealed set of one block.

    Rows stand in order of their sequences, and those of a sequence in order of start: neighbours
    share their clean prefix, and a kernel cuts them into tiles where they are. ``places`` and
    ``runs`` are found by asking the device; rows that are ``known`` to the host have them from
    there, so that nobody waits.
    """

    sequence: Int64[Tensor, " rows"]
    start: Int64[Tensor, " rows"]
    """Position of the block's first token: as many clean tokens are before it."""
    tokens: Int64[Tensor, "rows size"]
    """The true tokens; absent positions hold the mask id."""
    revealed: Bool[Tensor, "rows size"]
    needed: Bool[Tensor, "rows size"]
    """Where a log-probability is asked for: hidden positions only."""
    exists: Bool[Tensor, "rows size"] | None = None
    """Which positions there are; None if all. Only rows that are whole sequences lack some."""

    @cached_property
    def places(self) -> Int64[Tensor, " needed"]:
        """The needed positions, numbered through all rows: an index in place of the mask."""
        return self.needed.flatten().nonzero()[:, 0]

    @cached_property
    def runs(self) -> tuple[BlockRun, ...]:
        """The blocks of the rows, in their order."""
        blocks = zip(self.sequence.tolist(), self.start.tolist(), strict=True)
        return tuple(BlockRun(*block, len(list(same))) for block, same in groupby(blocks))

    def known(self, places: Int64[Tensor, " needed"], runs: tuple[BlockRun, ...]) -> "NoisyRows":
        """Return the same rows, whose places and runs the host knows already."""
        rows = copy(self)
        vars(rows).update(places=places, runs=runs)
        return rows

    def check_runs(self, clean_length: int) -> None:
        """Refuse rows that are out of order, or not behind clean tokens, naming the first."""
        before = BlockRun(0, 0, 0)
        for run in self.runs:
            if run[:2] < before[:2]:
                raise ValueError(
                    "rows: expected sequences in order, and starts in order in each of them, got "
                    f"sequence {run.sequence} at {run.start} after {before.sequence} at "
                    f"{before.start}"
                )
            if not 0 <= run.start <= clean_length:
                raise ValueError(
                    f"rows.start: expected at most {clean_length} clean tokens before a row, "
                    f"got {run.start}"
                )
            before = run


C = TypeVar("C")


@runtime_checkable
class BlockModel(Protocol[C]):
    """A model that predicts the hidden tokens of a block from the rest and the blocks before.

    A full-sequence masked diffusion model is the case of one block.
    """

    @property
    def mask_id(self) -> int:
        """The token that stands for "hidden"."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the mask token's included."""
        ...

    @property
    def block_size(self) -> int:
        """Number of positions in a block."""
        ...

    @property
    def max_length(self) -> int:
        """Longest sequence the model was made for."""
        ...

    def encode(self, tokens: Int64[Tensor, "batch length"]) -> C:
        """Read the clean tokens once, for all rows that will condition on them."""
        ...

    def log_probs(self, context: C, rows: NoisyRows) -> Float[Tensor, " needed"]:
        """Return the log-probability of the true token at each needed position, in row order."""
        ...


@runtime_checkable
class SamplingModel(BlockModel[C], Protocol[C]):
    """A block model that sequences can be drawn from, one block after the other.

    Blocks read one by one make the context that ``encode`` makes of them at once, and ``logits``
    are those of ``log_probs``: then samples have the distribution whose likelihood is computed.
    A context is the model's own business; gradients are never asked for.
    """

    @property
    def device(self) -> torch.device:
        """Where it expects tokens and rows."""
        ...

    def empty_context(self, batch: int) -> C:
        """Return the context of ``batch`` sequences that have no clean tokens yet."""
        ...

    def extend(self, context: C, tokens: Int64[Tensor, "batch size"]) -> C:
        """Read one more clean block of every sequence; ``context`` itself stays as it was."""
        ...

    def logits(self, context: C, rows: NoisyRows) -> Float[Tensor, "needed vocab"]:
        """Return the logits of all tokens at each needed position, in row order.

        The mask token's is -inf. A sampler's rows stand at the end of the context, at most one for
        each sequence, in order; positions that are not drawn yet hold the mask id.
        """
        ...


@runtime_checkable
class AutoregressiveModel(Protocol):
    """A model with an exact left-to-right likelihood."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids it can read."""
        ...

    def token_log_probs(
        self, tokens: Int64[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length_minus_1"]:
        """Return log p(x[t + 1] | x[..t]) for every t."""
        ...
