"""Load models from what their authors and our users have, in one call.

Each takes a ``Checkpoint``, or where it is and the options that are the fields of ``Checkpoint``.
"""

from contextlib import nullcontext
from typing import Any

import torch

from tube_lightning.checkpoints.checkpoint import Checkpoint, Sizes
from tube_lightning.checkpoints.dit_family import read_network
from tube_lightning.checkpoints.families import expect_family, find_family, load_causal_lm
from tube_lightning.checkpoints.sources import Source
from tube_lightning.networks import AutoregressiveModel, BlockModel, DiT


def load_block_model(
    source: Checkpoint | Source,
    **options: Any,  # noqa: ANN401 (the fields of ``Checkpoint``)
) -> BlockModel[Any]:
    """Load a block model or a full-sequence masked diffusion model."""
    checkpoint = Checkpoint.of(source, options)
    return expect_family(checkpoint).load_block_model(checkpoint)


def load_block_model_on(device: torch.device, checkpoint: Checkpoint) -> BlockModel[Any]:
    """Load a block model for a device: straight to it, if its family puts tensors there one by one.

    Any other is loaded to the CPU, for its user to move.
    """
    family = expect_family(checkpoint)
    with device if family.fills_device else nullcontext():
        return family.load_block_model(checkpoint)


def load_arm(source: Checkpoint | Source, **options: Any) -> AutoregressiveModel:  # noqa: ANN401
    """Load an ARM: of a family, or else any causal language model of transformers.

    No remote code is run.
    """
    checkpoint = Checkpoint.of(source, options)
    family = find_family(checkpoint)
    return load_causal_lm(checkpoint) if family is None else family.load_arm(checkpoint)


def read_sizes(source: Checkpoint | Source, **options: Any) -> Sizes:  # noqa: ANN401
    """Read the sizes of a block model, without its weights."""
    checkpoint = Checkpoint.of(source, options)
    family = expect_family(checkpoint)
    sizes = family.sizes(checkpoint)
    if not isinstance(sizes, Sizes):
        raise ValueError(f"{family.name}: expected its sizes to return Sizes, got {sizes!r}")
    return sizes


def read_checkpoint(source: Checkpoint | Source, **options: Any) -> DiT:  # noqa: ANN401
    """Read the network of BD3-LM, MDLM or their AR baseline, to be trained: in fp32.

    Strictly: each tensor is there, and no other is.
    """
    return read_network(Checkpoint.of(source, options))
