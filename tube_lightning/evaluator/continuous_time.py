"""The continuous-time ELBO, one draw a block, as BD3-LM's own evaluation estimates it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from tube_lightning.orderings import Role
from tube_lightning.randomness import HIDDEN, uniforms

MIN_TIME = 1e-3
"""The original code never draws a masking rate below this."""


@dataclass(frozen=True, eq=False)
class HiddenDraws:
    """Which positions of each block are hidden, at which masking rate."""

    hidden: Bool[Tensor, "batch blocks draws size"]
    revealed: Bool[Tensor, "batch blocks draws size"]
    rate: Float64[Tensor, "batch blocks draws"]

    def weighted_elbo(
        self, log_probs: Float64[Tensor, "batch blocks draws size"]
    ) -> Float64[Tensor, "batch blocks draws"]:
        """Return (1 / t) sum over hidden d of log p(x_d | what is revealed), in nats.

        Its expectation over t ~ U(0, 1) is the any-order ELBO (TUBE paper, eq. (mdm_elbo) as T
        grows).
        """
        return torch.where(self.hidden, log_probs, 0.0).sum(dim=-1) / self.rate


def hidden_draws(
    seed: int,
    sequences: Sequence[int],
    roles: Int64[Tensor, "batch blocks size"],
    num_draws: int,
) -> HiddenDraws:
    """Draw masking rates t ~ U[MIN_TIME, 1), and hide each scored position with probability t.

    The rates of a sequence's blocks are one systematic sample, evenly spread over the interval:
    the original code spreads them over a batch, which would make them depend on its size. The
    draws depend on the seed, the sequence's id and its own number of blocks alone.
    """
    _, blocks, size = roles.shape
    uniform = _rate_and_positions(seed, sequences, blocks, num_draws, size).to(roles.device)
    own_blocks = (roles < Role.ABSENT).any(dim=-1).sum(dim=-1)  # the batch may pad with others
    number = torch.arange(blocks, device=roles.device, dtype=torch.float64)
    spread = (number / own_blocks[:, None].clamp(min=1))[..., None]
    rate = MIN_TIME + (1 - MIN_TIME) * ((uniform[:, :1, :, 0] + spread) % 1.0)
    scored = (roles == Role.SCORED)[:, :, None]
    hidden = (uniform[..., 1:] < rate[..., None]) & scored
    revealed = (scored & ~hidden) | (roles == Role.GIVEN)[:, :, None]
    return HiddenDraws(hidden, revealed, rate)


def _rate_and_positions(
    seed: int, sequences: Sequence[int], blocks: int, num_draws: int, size: int
) -> Float64[Tensor, "batch blocks draws size_plus_1"]:
    """Draw, for every block and draw, the number of the rate and then one of each position."""
    shape = (num_draws, size + 1)
    drawn = [
        [uniforms(HIDDEN, seed, sequence, block, num_draws * (size + 1)).reshape(shape)
         for block in range(blocks)]
        for sequence in sequences
    ]  # fmt: skip
    return torch.from_numpy(np.array(drawn).reshape(len(sequences), blocks, *shape))
