"""Surrogates psi that do not depend on the sampled orderings: one fixed order, or another model.

Each is a density over a block given the blocks before, so TUBE at it is an upper bound. ``psi_M``,
the mean over orderings of the model itself, is made of scores: see ``bounds``.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.networks import AutoregressiveModel
from tube_lightning.orderings import Role


def left_to_right_times(
    roles: Int64[Tensor, "*batch size"],
) -> Float64[Tensor, "*batch size"]:
    """Return reveal times that walk through the scored positions from left to right, evenly.

    They are one fixed draw in every regime: in T steps, T runs of neighbours.

    >>> left_to_right_times(torch.tensor([Role.GIVEN, Role.SCORED, Role.SCORED])).tolist()
    [0.0, 0.25, 0.75]
    """
    scored = roles == Role.SCORED
    count = scored.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(scored, (scored.cumsum(dim=-1).double() - 0.5) / count, 0.0)


def block_log_probs(
    arm: AutoregressiveModel,
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
) -> Float64[Tensor, "batch blocks"]:
    """Return an ARM's log-probability of the scored tokens of each block, in nats.

    The tokens are those that the block model is scored on: the same denominator.
    """
    if (roles[:, 0, 0] == Role.SCORED).any():
        raise ValueError("roles: expected token 0 to be given (an ARM has no probability for it)")
    log_probs = arm.token_log_probs(tokens).double()
    positions = roles.shape[1] * roles.shape[2]
    padded = F.pad(log_probs, (1, positions - tokens.shape[1]))
    by_block = rearrange(padded, "batch (blocks size) -> batch blocks size", size=roles.shape[2])
    return torch.where(roles == Role.SCORED, by_block, 0.0).sum(dim=-1)
