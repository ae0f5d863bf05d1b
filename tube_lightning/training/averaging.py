"""An exponential moving average of a network's weights: what is evaluated and saved."""

import lightning as L
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor, nn


class AverageWeights(WeightAveraging):
    """Keep a copy of the weights that follows them, more slowly as training goes on.

    After optimizer step n it moves by 1 - min(decay, (1 + n) / (10 + n)) of the way, so that early
    weights are forgotten. Validation sees the average; so does whoever uses the module after
    training. Checkpoints have the average in ``state_dict``, the weights in ``current_model_state``
    and n + 1 in ``averaging_state``.
    """

    def __init__(self, decay: float) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=self._follow)
        self.decay = decay

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make the average, of the precision that the weights are about to get."""
        trainer.precision_plugin.convert_module(pl_module)
        super().setup(trainer, pl_module, stage)
        if self._average_model is not None:
            self._average_model.n_averaged.fill_(1)  # at 0 it would forget the initial weights

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave the weights as they are: the last checkpoint may be yet to come."""

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Give the module its average weights, even if there was no step left to train."""
        super().on_train_end(trainer, pl_module)

    @property
    def average(self) -> nn.Module:
        """The module with its average weights."""
        if self._average_model is None:
            raise RuntimeError("average: expected a module in training, got none")
        module: nn.Module = self._average_model.module
        return module

    def _follow(self, averages: list[Tensor], weights: list[Tensor], n_averaged: Tensor) -> None:
        count = int(n_averaged)
        decay = min(self.decay, (1 + count) / (10 + count))
        torch._foreach_lerp_(averages, weights, 1 - decay)
