"""Checkpoints of block models and ARMs, as their authors and our users have them.

Nothing in a checkpoint is ever executed.
"""

from tube_lightning.checkpoints.loading import load_arm, load_block_model, read_checkpoint
from tube_lightning.checkpoints.published import save_checkpoint

__all__ = ["load_arm", "load_block_model", "read_checkpoint", "save_checkpoint"]
