"""The LightningModule that trains a network under any of our objectives."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import lightning as L
import torch
from jaxtyping import Float, Int64
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from tube_lightning.checkpoints import describe_network
from tube_lightning.networks import DiT
from tube_lightning.randomness import noise_generator
from tube_lightning.training.averaging import AverageWeights
from tube_lightning.training.objectives import Cost
from tube_lightning.training.screen import TRAIN_LOSS, VALIDATION_LOSS


@runtime_checkable
class Objective(Protocol):
    """A cost of tokens under a network and a source of noise."""

    def __call__(
        self, network: DiT, tokens: Int64[Tensor, "batch length"], generator: torch.Generator
    ) -> Cost:
        """Return the cost of a batch."""
        ...


class DenoiserTraining(L.LightningModule):
    """Train a network; evaluate and save the moving average of its weights.

    All noise is a function of (seed, batch, rank), so a resumed run repeats an uninterrupted one.
    """

    def __init__(
        self,
        network: DiT,
        objective: Objective,
        optimizer: Callable[[DiT], torch.optim.Optimizer],
        schedule: Callable[[int], float],
        *,
        ema_decay: float = 0.9999,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= ema_decay < 1:
            raise ValueError(f"ema_decay: expected 0 <= ema_decay < 1, got {ema_decay}")
        self.network = network
        self.ema_decay = ema_decay
        self.objective = objective
        self.optimizer = optimizer
        self.schedule = schedule
        self.seed = seed

    def configure_callbacks(self) -> list[Callback]:
        """Average the weights, whatever the trainer's other callbacks are."""
        return [AverageWeights(self.ema_decay)]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Make the optimizer, its rate scaled at every step by the schedule."""
        optimizer = self.optimizer(self.network)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.schedule)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say which network it is, so that the state can be evaluated as it stands."""
        checkpoint |= describe_network(self.network.config)

    def training_step(
        self, tokens: Int64[Tensor, "batch length"], batch_idx: int
    ) -> Float[Tensor, ""]:
        """Return nats per token under fresh noise."""
        gathered = self.trainer.accumulate_grad_batches
        generator = self._generator(2 * (self.global_step * gathered + batch_idx % gathered))
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # dropout draws from the global generator
            torch.manual_seed(generator.initial_seed())
            cost = self.objective(self.network, tokens, generator)
        loss = cost.sum_nats / cost.num_tokens
        if not loss.isfinite():
            raise ValueError(
                f"loss: expected a number, got {loss.item()} at step {self.global_step}"
            )
        self.log(TRAIN_LOSS, loss.detach())
        return loss

    def validation_step(self, tokens: Int64[Tensor, "batch length"], batch_idx: int) -> None:
        """Measure the average weights, which are in place now, under the same noise every time."""
        cost = self.objective(self.network, tokens, self._generator(2 * batch_idx + 1))
        self.log(
            VALIDATION_LOSS,
            cost.sum_nats / cost.num_tokens,
            batch_size=cost.num_tokens,
            sync_dist=True,
        )

    def _generator(self, draw: int) -> torch.Generator:
        """Make the source of noise of one draw."""
        return noise_generator(self.seed, draw, self.global_rank)
