"""Checkpoints of block models and ARMs, as their authors and our users have them.

Nothing in a checkpoint is ever executed.
"""

from tube_lightning.checkpoints.checkpoint import Checkpoint, Sizes
from tube_lightning.checkpoints.companions import companion, load_companion, suggest_arms
from tube_lightning.checkpoints.families import find_family
from tube_lightning.checkpoints.family import Family
from tube_lightning.checkpoints.loading import (
    load_arm,
    load_block_model,
    load_block_model_on,
    read_checkpoint,
    read_sizes,
)
from tube_lightning.checkpoints.own_states import describe_network
from tube_lightning.checkpoints.published import WEIGHTS_FILE, save_checkpoint
from tube_lightning.checkpoints.said import say
from tube_lightning.checkpoints.sources import LAST_STATE_FILE, MODEL_FOLDER, Source

__all__ = [
    "LAST_STATE_FILE",
    "MODEL_FOLDER",
    "WEIGHTS_FILE",
    "Checkpoint",
    "Family",
    "Sizes",
    "Source",
    "companion",
    "describe_network",
    "find_family",
    "load_arm",
    "load_block_model",
    "load_block_model_on",
    "load_companion",
    "read_checkpoint",
    "read_sizes",
    "save_checkpoint",
    "say",
    "suggest_arms",
]
