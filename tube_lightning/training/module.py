"""The LightningModule that trains a network under any of our objectives."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import lightning as L
import torch
from jaxtyping import Float, Int64
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from tube_lightning.checkpoints import read_checkpoint
from tube_lightning.networks import DiT, DiTConfig
from tube_lightning.randomness import noise_generator
from tube_lightning.training.averaging import AverageWeights
from tube_lightning.training.objectives import Cost


@runtime_checkable
class Objective(Protocol):
    """A cost of tokens under a network and a source of noise."""

    def __call__(
        self, network: DiT, tokens: Int64[Tensor, "batch length"], generator: torch.Generator
    ) -> Cost:
        """Return the cost of a batch."""
        ...


def make_network(config: DiTConfig, init_from: str | None = None, *, seed: int = 0) -> DiT:
    """Make a network, from scratch or with the weights of another (MDLM -> BD3-LM, ARM -> ARM)."""
    with torch.random.fork_rng(devices=[]):  # torch initialises from the global generator
        torch.manual_seed(seed)
        network = DiT(config)
    if init_from is not None:
        weights = read_checkpoint(init_from).state_dict()
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"init_from: {init_from} does not fit {config}: {error}") from error
    return network


class DenoiserTraining(L.LightningModule):
    """Train a network; evaluate and save the moving average of its weights.

    All noise is a function of (seed, step, rank), so a resumed run repeats an uninterrupted one.
    """

    def __init__(
        self,
        network: DiT,
        objective: Objective,
        schedule: Callable[[int], float],
        *,
        learning_rate: float = 3e-4,
        weight_decay: float = 0.0,
        ema_decay: float = 0.9999,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= ema_decay < 1:
            raise ValueError(f"ema_decay: expected 0 <= ema_decay < 1, got {ema_decay}")
        self.network = network
        self.ema_decay = ema_decay
        self.objective = objective
        self.schedule = schedule
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.seed = seed

    def configure_callbacks(self) -> list[Callback]:
        """Average the weights, whatever the trainer's other callbacks are."""
        return [AverageWeights(self.ema_decay)]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Use AdamW, its rate scaled at every step by the schedule."""
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.schedule)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def training_step(self, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, ""]:
        """Return nats per token under fresh noise."""
        generator = self._generator(2 * self.global_step)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # dropout draws from the global generator
            torch.manual_seed(generator.initial_seed())
            cost = self.objective(self.network, tokens, generator)
        loss = cost.sum_nats / cost.num_tokens
        if not loss.isfinite():
            raise ValueError(
                f"loss: expected a number, got {loss.item()} at step {self.global_step}"
            )
        self.log("train/nats_per_token", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, tokens: Int64[Tensor, "batch length"], batch_idx: int) -> None:
        """Measure the average weights, which are in place now, under the same noise every time."""
        cost = self.objective(self.network, tokens, self._generator(2 * batch_idx + 1))
        self.log(
            "val/nats_per_token",
            cost.sum_nats / cost.num_tokens,
            batch_size=cost.num_tokens,
            prog_bar=True,
            sync_dist=True,
        )

    def _generator(self, draw: int) -> torch.Generator:
        """Make the source of noise of one draw."""
        return noise_generator(self.seed, draw, self.global_rank, self.device)
