"""Optimizers of a network: AdamW, or Muon for its hidden matrices and AdamW for the rest."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from tube_lightning.networks import DiT
from tube_lightning.training.muon import Muon

_BETAS_BESIDE_MUON = (0.9, 0.95)
"""AdamW's, as in the runs that Muon comes from: they forget as fast as Muon's momentum."""


def adamw(network: DiT, *, learning_rate: float, weight_decay: float = 0.0) -> Optimizer:
    """Use AdamW for all parameters."""
    return AdamW(network.parameters(), lr=learning_rate, weight_decay=weight_decay)


def muon(
    network: DiT, *, learning_rate: float, weight_decay: float = 0.0, momentum: float = 0.95
) -> Optimizer:
    """Use Muon for the matrices of the layers; AdamW for embedding, head, norms and modulation.

    One learning rate for both: Muon's steps are scaled to the size of AdamW's. ``momentum`` is
    Muon's, and only its matrices decay.
    """
    matrices, others = split_parameters(network)
    on_cuda = matrices[0].device.type == "cuda"
    make: Any = partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw") if on_cuda else Muon
    first = make(matrices, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    second = AdamW(others, lr=learning_rate, weight_decay=0.0, betas=_BETAS_BESIDE_MUON)
    return OptimizersAsOne(first, second)


def split_parameters(network: DiT) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Tell the hidden matrices, which map features to features in every layer, from the rest."""
    hidden = {
        id(parameter)
        for name, parameter in network.blocks.named_parameters()
        if parameter.ndim == 2 and "adaLN_modulation" not in name
    }
    parameters = list(network.parameters())
    matrices = [parameter for parameter in parameters if id(parameter) in hidden]
    return matrices, [parameter for parameter in parameters if id(parameter) not in hidden]


class OptimizersAsOne(Optimizer):
    """Several optimizers of different parameters, for whoever takes one: schedules, Lightning.

    The groups and the state are the whole's; each part is lent its own of them for a step.
    """

    def __init__(self, *parts: Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._sizes = [len(part.param_groups) for part in parts]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401
        """Compute gradients once, then let every part move its parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = iter(self.param_groups)
        for part, size in zip(self.parts, self._sizes, strict=True):
            part.param_groups = [next(groups) for _ in range(size)]
            part.state = self.state
            part.step()
        return loss
