"""Token sequences as Lightning takes them."""

from collections.abc import Callable

import lightning

from tube_lightning.data.batches import TrainingBatches, ValidationBatches
from tube_lightning.data.sequences import TokenSequences


class TokenDataModule(lightning.LightningDataModule):
    """Batches ``[batch, length]`` of token ids for training and validation.

    ``train`` and ``validation`` make the sequences and are called once, on every rank, when a stage
    first needs them. ``batch_size`` counts the sequences of one batch over all devices.
    """

    def __init__(
        self,
        train: Callable[[], TokenSequences] | None = None,
        validation: Callable[[], TokenSequences] | None = None,
        *,
        batch_size: int,
        validation_batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.make_train, self.make_validation = train, validation
        self.batch_size, self.seed = batch_size, seed
        self.validation_batch_size = validation_batch_size or batch_size
        self.train_sequences: TokenSequences | None = None
        self.validation_sequences: TokenSequences | None = None

    def setup(self, stage: str = "fit") -> None:
        """Make the sequences of a stage, unless they are there."""
        if stage == "fit" and self.train_sequences is None and self.make_train is not None:
            self.train_sequences = self.make_train()
        if self.validation_sequences is None and self.make_validation is not None:
            self.validation_sequences = self.make_validation()

    def train_dataloader(self) -> TrainingBatches:
        """Return this rank's share of the shuffled batches."""
        if self.train_sequences is None:
            raise ValueError("train: expected token sequences to train on, got none")
        rank, world_size = self._place()
        return TrainingBatches(
            self.train_sequences, self.batch_size, seed=self.seed, rank=rank, world_size=world_size
        )

    def val_dataloader(self) -> ValidationBatches:
        """Return this rank's share of the validation batches."""
        if self.validation_sequences is None:
            raise ValueError(
                "validation: expected token sequences to validate on, got none; "
                "train without validation by Trainer(limit_val_batches=0)"
            )
        rank, world_size = self._place()
        return ValidationBatches(
            self.validation_sequences, self.validation_batch_size, rank=rank, world_size=world_size
        )

    def _place(self) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size
