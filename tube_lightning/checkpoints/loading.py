"""Load models from what their authors and our users have, in one call."""

from typing import Any

from tube_lightning.checkpoints.checkpoint import Checkpoint
from tube_lightning.checkpoints.dit_family import read_network
from tube_lightning.checkpoints.sources import Source
from tube_lightning.networks import AutoregressiveModel, BlockModel, DiT


def load_block_model(source: Source, **options: Any) -> BlockModel[Any]:  # noqa: ANN401
    """Load a block model or a full-sequence masked diffusion model.

    ``source`` and the options are the fields of ``Checkpoint``.
    """
    return Checkpoint.of(source, options).load_block_model()


def load_arm(source: Source, **options: Any) -> AutoregressiveModel:  # noqa: ANN401
    """Load an ARM: the AR baseline of BD3-LM and MDLM, or any causal LM of transformers.

    ``source`` and the options are the fields of ``Checkpoint``. No remote code is run.
    """
    return Checkpoint.of(source, options).load_arm()


def read_checkpoint(source: Source, **options: Any) -> DiT:  # noqa: ANN401
    """Read the network of BD3-LM, MDLM or their AR baseline, to be trained: in fp32.

    Strictly: each tensor is there, and no other is. ``source`` and the options are the fields of
    ``Checkpoint``.
    """
    return read_network(Checkpoint.of(source, options))
