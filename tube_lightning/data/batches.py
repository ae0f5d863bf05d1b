"""Batches of token sequences: which sequences a step sees, on every rank and after every kill."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from tube_lightning.data.sequences import TokenSequences
from tube_lightning.randomness import epoch_order


class TrainingBatches:
    """An endless stream of shuffled batches; one iteration yields an epoch's worth of it.

    Epoch e is the permutation drawn from (seed, e), cut into batches; the sequences that fill no
    batch wait for another epoch. A batch is split over the ranks, so its content depends on neither
    their number nor Lightning's state. An iteration continues where the last one stopped, and
    Lightning stores that place (``state_dict``), so a killed run goes on with the very next batch.

    Not a torch ``DataLoader``: indexing a tensor needs no workers, and Lightning replaces samplers.
    """

    def __init__(
        self,
        text: TokenSequences,
        batch_size: int,
        *,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        _check_batch_size(batch_size, world_size)
        if len(text) < batch_size:
            raise ValueError(
                f"batch_size: expected at most the {len(text)} sequences of {text.source}, "
                f"got {batch_size}"
            )
        if seed < 0:
            raise ValueError(f"seed: expected a non-negative integer, got {seed}")
        self.text, self.batch_size, self.seed = text, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.batches_seen = 0
        self._order: tuple[int, Int64[Tensor, " sequences"]] = 0, self._shuffle(0)

    def __len__(self) -> int:
        """Count the batches of an epoch."""
        return len(self.text) // self.batch_size

    def __iter__(self) -> Iterator[Int64[Tensor, "batch length"]]:
        """Yield an epoch's worth of batches, from the first one not yet seen."""
        for _ in range(len(self)):
            self.batches_seen += 1  # before the step: a checkpoint made in it is past this batch
            yield self._batch(self.batches_seen - 1)

    def _batch(self, number: int) -> Int64[Tensor, "batch length"]:
        epoch, position = divmod(number, len(self))
        if self._order[0] != epoch:
            self._order = epoch, self._shuffle(epoch)
        start = position * self.batch_size
        rows = self._order[1][start + self.rank : start + self.batch_size : self.world_size]
        return self.text.tokens[rows]

    def _shuffle(self, epoch: int) -> Int64[Tensor, " sequences"]:
        return torch.from_numpy(epoch_order(self.seed, epoch, len(self.text)))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream, and what the stream is made of."""
        return {"batches_seen": self.batches_seen, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place in the stream; refuse the place of another stream."""
        for key, value in self._identity().items():
            if state[key] != value:
                raise ValueError(
                    f"resume: expected the {key} {state[key]!r} as before, got {value!r}"
                )
        self.batches_seen = state["batches_seen"]

    def _identity(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "seed": self.seed,
            "sha256": self.text.sha256,
        }


class ValidationBatches:
    """Every sequence once, in order; each rank the same number of batches, none of them empty.

    Ranks with fewer batches than others hang where a step synchronises, so batches are made even
    (at most ``batch_size`` sequences each, except that no rank goes without) and then split.
    """

    def __init__(
        self, text: TokenSequences, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> None:
        _check_batch_size(batch_size, world_size)
        if len(text) < world_size:
            raise ValueError(
                f"{text.source}: expected a sequence for each of {world_size} devices, "
                f"got {len(text)}"
            )
        self.text, self.batch_size = text, batch_size
        self.rank, self.world_size = rank, world_size

    def __len__(self) -> int:
        """Count the batches."""
        wanted = math.ceil(len(self.text) / self.batch_size)
        return min(wanted, len(self.text) // self.world_size)

    def __iter__(self) -> Iterator[Int64[Tensor, "batch length"]]:
        """Yield this rank's part of each batch."""
        for batch in self.text.tokens.tensor_split(len(self)):
            yield batch[self.rank :: self.world_size]


def _check_batch_size(batch_size: int, world_size: int) -> None:
    if batch_size < 1 or batch_size % world_size:
        raise ValueError(
            f"batch_size: expected a positive multiple of the number of devices ({world_size}), "
            f"because it counts the sequences on all of them, got {batch_size}"
        )
