"""An exponential moving average of a network's weights: what is evaluated and saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage(nn.Module):
    """Keep shadow weights that follow a network's, more slowly as training goes on.

    The decay at update n is min(decay, (1 + n) / (10 + n)), so that early weights are forgotten.
    """

    num_updates: Tensor

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay: expected 0 <= decay < 1, got {decay}")
        self.decay = decay
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        for name, parameter in network.named_parameters():
            self.register_buffer(_buffer_name(name), parameter.detach().clone())

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the shadow weights a step towards the network's."""
        self.num_updates += 1
        count = int(self.num_updates)
        decay = min(self.decay, (1 + count) / (10 + count))
        for name, parameter in network.named_parameters():
            self.get_buffer(_buffer_name(name)).lerp_(parameter, 1 - decay)

    @contextmanager
    def applied_to(self, network: nn.Module) -> Iterator[None]:
        """Give the network its average weights for the time being."""
        raw = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        try:
            self._copy(network, {n: self.get_buffer(_buffer_name(n)) for n in raw})
            yield
        finally:
            self._copy(network, raw)

    @staticmethod
    @torch.no_grad()
    def _copy(network: nn.Module, weights: dict[str, Tensor]) -> None:
        for name, parameter in network.named_parameters():
            parameter.copy_(weights[name])


def _buffer_name(parameter_name: str) -> str:
    """Buffers may not have dots in their names."""
    return parameter_name.replace(".", "/")
