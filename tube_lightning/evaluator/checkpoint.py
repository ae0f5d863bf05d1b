"""A checkpoint as users name it, whose sizes are known before its weights are read."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tube_lightning.checkpoints import load_arm, load_block_model
from tube_lightning.checkpoints.published import read_config
from tube_lightning.checkpoints.sources import Source, local_file
from tube_lightning.checkpoints.training_checkpoint import training_checkpoint_sizes
from tube_lightning.demo import demo_checkpoint
from tube_lightning.networks import AutoregressiveModel, BlockDiffusion

_DEMO = "demo:"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Sizes(NamedTuple):
    """What a checkpoint tells about a model; None where it does not."""

    vocab_size: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Where a model is, and what its files may not tell (see ``load_block_model``).

    ``checkpoint`` is a folder, a hub id, a training ``*.ckpt``, or ``demo:NAME`` for one that comes
    with the package.
    """

    checkpoint: str
    weights: str = "ema"
    block_size: int | None = None
    n_heads: int | None = None
    model_length: int | None = None
    mask_id: int | None = None
    dtype: str = "float32"
    revision: str | None = None

    def __post_init__(self) -> None:
        """Refuse a precision that networks cannot run in."""
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype: expected {', '.join(_DTYPES)}, got {self.dtype!r}")

    @property
    def source(self) -> Source:
        """Where the files are."""
        if self.checkpoint.startswith(_DEMO):
            return demo_checkpoint(self.checkpoint.removeprefix(_DEMO))
        return self.checkpoint

    def sizes(self) -> Sizes:
        """Read the sizes without the weights."""
        if (path := local_file(self.source)) is not None:
            known = training_checkpoint_sizes(path)
        else:
            known = read_config(self.source, self.revision)
        return Sizes(known.get("vocab_size"), known.get("model_length") or self.model_length)

    def load_block_model(self) -> BlockDiffusion:
        """Load it as a block model."""
        return load_block_model(self.source, block_size=self.block_size, **self._options())

    def load_arm(self) -> AutoregressiveModel:
        """Load it as an ARM."""
        if self.block_size not in (None, 1):
            raise ValueError(f"block_size: expected none for an ARM, got {self.block_size}")
        return load_arm(self.source, **self._options())

    def _options(self) -> dict[str, Any]:
        names = ("weights", "n_heads", "model_length", "mask_id", "revision")
        return {name: getattr(self, name) for name in names} | {"dtype": _DTYPES[self.dtype]}


EMBEDDED_ARMS = {
    "demo:bd3lm_l4": {"arm": "demo:arm", "arm_ft": "demo:arm_ft_l4"},
    "demo:bd3lm_l8": {"arm": "demo:arm"},
    "demo:bd3lm_l16": {"arm": "demo:arm"},
}


def companion(
    name: str, model: Checkpoint, checkpoint: str | None, dtype: str = "float32"
) -> Checkpoint | None:
    """Name the "arm" or "arm_ft" that goes with a model.

    "auto" is the embedded one for embedded models, and none for others; null is none.
    """
    if checkpoint == "auto":
        checkpoint = EMBEDDED_ARMS.get(model.checkpoint, {}).get(name)
    return None if checkpoint is None else Checkpoint(checkpoint, dtype=dtype)
