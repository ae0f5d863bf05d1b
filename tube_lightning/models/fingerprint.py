"""A hash of what a model computes with, to tell whether two runs used the same one."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tube_lightning.models.trunk import HasTrunk, Layer, Trunk


def weights_sha256(model: object) -> str | None:
    """Hash a model's weights: a folder may be trained over between two runs.

    None for a model whose weights we cannot see.
    """
    if isinstance(model, HasTrunk):
        tensors = list(_tensors(model.trunk))
    elif isinstance(model, nn.Module):
        tensors = [*model.parameters(), *model.buffers()]
    else:
        tensors = []
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest() if tensors else None


def _tensors(node: object) -> Iterator[Tensor]:
    if isinstance(node, Tensor):
        yield node
    elif isinstance(node, Trunk | Layer | tuple):
        for item in node if isinstance(node, tuple) else vars(node).values():
            yield from _tensors(item)
