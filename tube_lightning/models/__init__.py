"""Networks, and the little that the rest of the package sees of them."""

from tube_lightning.models.block_diffusion import BlockDiffusion
from tube_lightning.models.checkpoints import (
    check_vocabularies,
    load_arm,
    load_block_model,
    read_checkpoint,
    save_checkpoint,
)
from tube_lightning.models.dit import DiT, DiTConfig
from tube_lightning.models.fingerprint import model_identity
from tube_lightning.models.protocols import AutoregressiveModel, BlockModel, NoisyRows
from tube_lightning.models.tokens import check_tokens

__all__ = [
    "AutoregressiveModel",
    "BlockDiffusion",
    "BlockModel",
    "DiT",
    "DiTConfig",
    "NoisyRows",
    "check_tokens",
    "check_vocabularies",
    "load_arm",
    "load_block_model",
    "model_identity",
    "read_checkpoint",
    "save_checkpoint",
]
