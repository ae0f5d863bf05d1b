"""What a model computes with, to tell whether two runs used the same one."""

import hashlib
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import nn

from tube_lightning.networks.trunk import HasTrunk, Trunk
from tube_lightning.records import named_tensors

_SIZES = ("block_size", "mask_id", "vocab_size", "max_length")


def model_identity(model: object) -> dict[str, Any]:
    """Tell a model from others: its sizes, its configuration if it has one, and its weights.

    ``weights_sha256`` is None for a model whose weights we cannot see. Such a model, or one that is
    more than its weights, may have an attribute ``fingerprint``: a text that no other model has.
    """
    sizes = {name: getattr(model, name) for name in _SIZES if hasattr(model, name)}
    config = getattr(model, "config", None)
    if is_dataclass(config) and not isinstance(config, type):
        sizes |= asdict(config)
    return sizes | {"weights_sha256": weights_sha256(model)}


def weights_sha256(model: object) -> str | None:
    """Hash a model's weights: a folder may be trained over between two runs.

    None for a model whose weights we cannot see, and which has no ``fingerprint``.
    """
    own = getattr(model, "fingerprint", None)
    if isinstance(own, str):
        return hashlib.sha256(own.encode()).hexdigest()
    if isinstance(model, HasTrunk) and isinstance(model.trunk, Trunk):  # others may have a trunk
        tensors = [tensor for _, tensor in named_tensors(model.trunk)]
    elif isinstance(model, nn.Module):
        tensors = [*model.parameters(), *model.buffers()]
    else:
        tensors = []
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest() if tensors else None
