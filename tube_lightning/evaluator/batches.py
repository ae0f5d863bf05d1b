"""Batches of an evaluation: which there are depends on the text, its order and the batch size."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import lightning
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from tube_lightning.checks import check_whole_number
from tube_lightning.data import Order, TokenSequences, sequence_order
from tube_lightning.orderings import Role
from tube_lightning.scores import ScoreFiles
from tube_lightning.scoring import at_scored

NO_BATCH = -1
"""The number of a turn without a batch."""


class TokenBatch(NamedTuple):
    """Some sequences. A rank that has run out of batches gets one without any."""

    number: int
    sequences: list[int]
    tokens: Int64[Tensor, "batch length"]
    roles: Int64[Tensor, "batch blocks size"]
    token_bytes: Int32[Tensor, "batch length"] | None
    """of the original text; None where unknown"""
    documents: Int32[Tensor, "batch length"] | None
    """the number of each token's document; None where unknown"""
    texts: tuple[tuple[str, ...], ...] | None
    """what the scored tokens of each block say; None where unknown"""


def sequence_roles(
    lengths: Int64[Tensor, " batch"],
    length: int,
    block_size: int,
    after_end: Role = Role.ABSENT,
    num_given: Int64[Tensor, " batch"] | None = None,
) -> Int64[Tensor, "batch blocks size"]:
    """Give token 0 or more, score the rest of each sequence, and leave out what is after its end.

    >>> sequence_roles(torch.tensor([3, 5]), length=5, block_size=4).tolist()
    [[[1, 0, 0, 2], [2, 2, 2, 2]], [[1, 0, 0, 0], [0, 2, 2, 2]]]
    """
    num_blocks = -(-length // block_size)
    position = torch.arange(num_blocks * block_size)
    roles = torch.where(position < lengths[:, None], Role.SCORED.value, after_end.value)
    given = torch.ones_like(lengths) if num_given is None else num_given
    roles[position < given[:, None]] = Role.GIVEN
    return roles.view(-1, num_blocks, block_size)


def block_texts(
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    decode: Callable[[Int64[Tensor, " tokens"]], str],
) -> tuple[tuple[str, ...], ...]:
    """Decode the scored tokens of each block; a character that is cut in two shows as such."""
    blocks = at_scored(tokens, roles, elsewhere=0)
    return tuple(
        tuple(decode(ids[role == Role.SCORED]) for ids, role in zip(*rows, strict=True))
        for rows in zip(blocks, roles, strict=True)
    )


class EvaluationBatches:
    """Some of the batches of a text, in order; ``remaining`` are those of all ranks together.

    ``sequences`` are those of the text that are evaluated, in the order in which they are. Blocks
    that are as long as the text's longest sequence end where each sequence does (``cut``).
    """

    def __init__(
        self,
        text: TokenSequences,
        sequences: Sequence[int],
        batch_size: int,
        block_size: int,
        numbers: Sequence[int],
        remaining: Sequence[int],
        cut: bool = False,
    ) -> None:
        self.text, self.sequences = text, sequences
        self.batch_size, self.block_size = batch_size, block_size
        self.numbers, self.remaining = numbers, remaining
        self.cut = cut

    @property
    def finished(self) -> list[int]:
        """List the batches that were on disk when this run began."""
        return sorted(set(range(-(-len(self.sequences) // self.batch_size))) - set(self.remaining))

    def __len__(self) -> int:
        """Count the turns."""
        return len(self.numbers)

    def __iter__(self) -> Iterator[TokenBatch]:
        """Yield the batches, padded to the longest sequence of each."""
        for number in self.numbers:
            yield self._batch(number)

    def _batch(self, number: int) -> TokenBatch:
        first, text = number * self.batch_size, self.text
        some = self.sequences[first : first + self.batch_size]
        ids = [] if number == NO_BATCH else list(some)
        rows = torch.tensor(ids, dtype=torch.int64)
        lengths = torch.full_like(rows, text.length)
        if text.lengths is not None:
            lengths = text.lengths[rows]
        longest = int(lengths.max()) if ids and not self.cut else text.length

        def taken(known: Tensor | None) -> Tensor | None:
            return None if known is None else known[rows, :longest]

        tokens = text.tokens[rows, :longest]
        after_end = Role.CUT if self.cut else Role.ABSENT
        given = None if text.num_given is None else text.num_given[rows]
        roles = sequence_roles(lengths, longest, self.block_size, after_end, given)
        return TokenBatch(
            number,
            ids,
            tokens,
            roles,
            taken(text.token_bytes),
            taken(text.documents),
            None if text.decode is None else block_texts(tokens, roles, text.decode),
        )


class EvaluationData(lightning.LightningDataModule):
    """The batches that are not on disk yet, dealt to the ranks one by one.

    ``num_batches`` are the first of those that the order of the sequences makes, or all: a longer
    evaluation has the batches of a shorter one. Every rank has equally many turns, for Lightning
    passes over a rank that has none: where the batches run out, a turn is without one. Blocks that
    are ``cut`` end with their sequence. Groups of ``processes_a_batch`` neighbouring ranks score a
    batch together.
    """

    def __init__(
        self,
        text: TokenSequences,
        *,
        batch_size: int,
        block_size: int,
        files: ScoreFiles,
        order: Order = "spread",
        num_batches: int | None = None,
        cut: bool = False,
        processes_a_batch: int = 1,
    ) -> None:
        super().__init__()
        check_whole_number("batch_size", batch_size, least=1)
        self.processes_a_batch = processes_a_batch
        self.text, self.order = text, order
        most = None if num_batches is None else num_batches * batch_size
        self.sequences = sequence_order(len(text), order)[:most]
        self.batch_size, self.block_size, self.cut = batch_size, block_size, cut
        self.files = files

    @property
    def num_batches(self) -> int:
        """Count the batches that are to be evaluated."""
        return -(-len(self.sequences) // self.batch_size)

    @property
    def most_scored(self) -> int | None:
        """Count the most scored tokens of a sequence, where that is one block."""
        return self.text.most_scored if self.cut else None

    def remaining(self) -> list[int]:
        """List the batches that are not on disk."""
        return sorted(set(range(self.num_batches)) - set(self.files.finished()))

    def test_dataloader(self) -> EvaluationBatches:
        """Return this rank's share. What is on disk is rank 0's word: the others may lag behind."""
        if self.trainer is None:
            numbers, rank, world_size = self.remaining(), 0, 1
        else:
            together, first = self.processes_a_batch, self.trainer.global_rank == 0
            rank = self.trainer.global_rank // together
            world_size = self.trainer.world_size // together
            numbers = self.trainer.strategy.broadcast(self.remaining() if first else [])
        turns = -(-len(numbers) // world_size)
        mine = numbers[rank::world_size]
        mine += [NO_BATCH] * (turns - len(mine))
        return EvaluationBatches(
            self.text, self.sequences, self.batch_size, self.block_size, mine, numbers, self.cut
        )
