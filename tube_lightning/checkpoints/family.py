"""A family: checkpoints that are read the same way."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tube_lightning.checkpoints.checkpoint import Checkpoint, Sizes
from tube_lightning.networks import AutoregressiveModel, BlockModel

Model = BlockModel[Any] | AutoregressiveModel


@dataclass(frozen=True)
class Family:
    """Which checkpoints it reads, and how.

    ``load`` returns a model with the methods of ``BlockModel``, of ``AutoregressiveModel``, or of
    both; ``sizes`` tells what it can without the weights. A checkpoint belongs to the family that
    names one of the ``architectures`` in its ``config.json``, or else its ``model_type``, or else
    that ``recognises`` the file. Where several do, a block size tells those that are one block
    (``whole``) from others, or the user does. ``look_alikes`` are model types of other models:
    checkpoints that say so may be of the family, if the user does too. ``arms`` are models of the
    same tokenizer to compare with. A ``load`` that ``fills_device`` puts tensors on torch's default
    device one by one; any other loads to the CPU.
    """

    name: str
    load: Callable[[Checkpoint], Model]
    sizes: Callable[[Checkpoint], Sizes]
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    look_alikes: tuple[str, ...] = ()
    recognises: Callable[[dict[str, Any]], bool] | None = None
    whole: bool = False
    arms: tuple[str, ...] = ()
    fills_device: bool = False

    def __post_init__(self) -> None:
        """Refuse a family that would read nothing, or anything."""
        names = self.model_types, self.architectures, self.look_alikes
        for some in names:
            if isinstance(some, str):
                raise TypeError(f"{self.name}: expected a tuple of names, got {some!r}")
        if not any(names) and self.recognises is None:
            raise ValueError(f"{self.name}: expected some model_types or architectures, got none")

    def load_block_model(self, checkpoint: Checkpoint) -> BlockModel[Any]:
        """Load a checkpoint, which must be a block model."""
        model = self.load(checkpoint)
        if isinstance(model, BlockModel):
            return model
        if isinstance(model, AutoregressiveModel):
            raise ValueError(
                f"{checkpoint}: expected a diffusion model, got an autoregressive one: give it as "
                "arm.checkpoint (load_arm)"
            )
        raise self._complain(model)

    def load_arm(self, checkpoint: Checkpoint) -> AutoregressiveModel:
        """Load a checkpoint, which must be an ARM."""
        if checkpoint.block_size not in (None, 1):
            raise ValueError(f"block_size: expected none for an ARM, got {checkpoint.block_size}")
        model = self.load(replace(checkpoint, block_size=None))
        if isinstance(model, AutoregressiveModel):
            return model
        if isinstance(model, BlockModel):
            raise ValueError(
                f"{checkpoint}: expected an autoregressive model, got a diffusion model with "
                f"blocks of {model.block_size}: give it as model.checkpoint (load_block_model)"
            )
        raise self._complain(model)

    def _complain(self, model: object) -> TypeError:
        return TypeError(
            f"{self.name}: expected its load to return a BlockModel or an AutoregressiveModel, "
            f"got {type(model).__name__}"
        )
