"""Networks of transformers, made empty and filled tensor by tensor."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tube_lightning.checkpoints.checkpoint import Checkpoint
from tube_lightning.checkpoints.decoders.parallel import keep_own_part
from tube_lightning.checkpoints.decoders.pieces import Piece, Translate
from tube_lightning.checkpoints.faults import shorten
from tube_lightning.checkpoints.tensor_files import iterate_slices

_KEPT_IN_FP32 = "e_score_correction_bias"
"""Experts are chosen in fp32 whatever the weights are."""


def make_network(backbone: str, settings: dict[str, Any]) -> nn.Module:
    """Make a causal language model of transformers without weights, on the meta device."""
    from transformers import AutoConfig, AutoModelForCausalLM  # takes seconds to import

    auto: Any = AutoModelForCausalLM
    config = AutoConfig.for_model(backbone, **settings, tie_word_embeddings=False)
    with torch.device("meta"):
        network: nn.Module = auto.from_config(config)
    return network


def fill_network(network: nn.Module, checkpoint: Checkpoint, translate: Translate) -> None:
    """Fill a network strictly: each tensor is there, and no other is, but perhaps the head.

    A file without a head has that of its embedding. Tensors are read one by one, converted to the
    checkpoint's ``dtype`` and put on torch's default device: no more than the weights and one
    tensor is in memory.
    """
    filler = _Filler(network, checkpoint.torch_dtype)
    for name, stored in iterate_slices(checkpoint):
        filler.put(name, stored, translate(name))
    filler.finish(str(checkpoint))
    _make_buffers(network)


class _Filler:
    """The parameters of a network, and how much of each is there."""

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        self.network, self.dtype = network, dtype
        self.expected = network.state_dict(keep_vars=True)
        self.head = next(n for n, p in self.expected.items() if p is _head(network).weight)
        self.missing = {name: tensor.numel() for name, tensor in self.expected.items()}
        self.faults: list[str] = []
        self.whole: dict[str, Tensor] = {}
        """parameters of which this process keeps a part, until they are complete"""

    def put(self, name: str, stored: Any, pieces: Iterable[Piece]) -> None:  # noqa: ANN401
        """Copy the pieces of a tensor to their places, or note that they have none."""
        for piece in pieces:
            if piece.target not in self.expected:
                self.faults.append(f"unexpected {name} {list(stored.get_shape())}")
                return
            values = stored[piece.rows] if stored.get_shape() else stored[...]
            place = self._tensor(piece.target)[piece.place]
            if place.shape != values.shape:
                self.faults.append(
                    f"{name}: expected {list(place.shape)}, got {list(values.shape)}"
                )
                return
            place.copy_(values)
            self.missing[piece.target] -= values.numel()
            if not self.missing[piece.target]:
                self._release(piece.target)

    def finish(self, source: str) -> None:
        """Give a file without a head that of its embedding; refuse what does not fit."""
        if self.missing[self.head] == self.expected[self.head].numel():
            _head(self.network).weight = _embedding(self.network).weight
            del self.missing[self.head]
        absent = [
            f"missing {name} {list(self.expected[name].shape)}"
            for name, count in self.missing.items()
            if count
        ]
        if faults := shorten(absent + self.faults):
            title = f"{source}: the tensors are not those of {type(self.network).__name__}:"
            raise ValueError("\n  ".join([title, *faults]))

    def _tensor(self, name: str) -> Tensor:
        """Return a parameter or buffer that is in memory."""
        module, _, last = name.rpartition(".")
        owner = self.network.get_submodule(module)
        tensor: Tensor = getattr(owner, last)
        if name in self.whole:
            return self.whole[name]
        if tensor.is_meta:
            dtype = torch.float32 if last == _KEPT_IN_FP32 else self.dtype
            real = torch.empty(tensor.shape, dtype=dtype, device=torch.get_default_device())
            if isinstance(tensor, DTensor):
                return self.whole.setdefault(name, real)
            if isinstance(tensor, nn.Parameter):
                setattr(owner, last, nn.Parameter(real, requires_grad=False))
            else:
                owner.register_buffer(last, real)
            tensor = getattr(owner, last)
        return tensor.detach()

    def _release(self, name: str) -> None:
        """Keep this process's part of a complete parameter, if it is cut."""
        whole = self.whole.pop(name, None)
        if whole is not None:
            module, _, last = name.rpartition(".")
            owner = self.network.get_submodule(module)
            own = keep_own_part(whole, getattr(owner, last))
            setattr(owner, last, nn.Parameter(own, requires_grad=False))


def _head(network: Any) -> nn.Linear:  # noqa: ANN401 (a class of transformers)
    head: nn.Linear = network.get_output_embeddings()
    return head


def _embedding(network: Any) -> nn.Embedding:  # noqa: ANN401 (a class of transformers)
    embedding: nn.Embedding = network.get_input_embeddings()
    return embedding


def _make_buffers(network: nn.Module) -> None:
    """Make what no file has: the frequencies of the rotation, on torch's default device."""
    for name, module in list(network.named_modules()):
        if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            real = type(module)(config=network.config)
            owner, _, last = name.rpartition(".")
            setattr(network.get_submodule(owner), last, real)
