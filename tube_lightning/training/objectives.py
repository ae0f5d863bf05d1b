"""What training minimises: nats of a batch under one draw of noise, and the tokens it counts.

- ``nelbo``: block diffusion, and full-sequence masked diffusion, its one-block case. The clean
  stream of a sequence runs once; noisy copies of its blocks run behind it, as in evaluation. The
  expectation is the negative any-order ELBO.
- ``negative_log_likelihood``: an autoregressive model.

Token 0 is given: it is never hidden and not counted.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tube_lightning.networks import (
    DiT,
    NoisyRows,
    PlannedRows,
    attend_densely,
    default_attention,
    read_blocks,
    run_rows,
)
from tube_lightning.orderings import Role, block_roles
from tube_lightning.placement import send
from tube_lightning.training.noise import Hide, hide_by_count


class Cost(NamedTuple):
    """A sum and what to divide it by: batches of any size add up."""

    sum_nats: Float[Tensor, ""]
    num_tokens: int


def nelbo(
    network: DiT,
    tokens: Int64[Tensor, "batch length"],
    generator: torch.Generator,
    *,
    hide: Hide = hide_by_count,
    copies: int = 1,
) -> Cost:
    """Draw noisy copies of each sequence and return their mean weighted cost."""
    if copies < 1:
        raise ValueError(f"copies: expected at least 1 noisy copy of a sequence, got {copies}")
    config, (batch, length) = network.config, tokens.shape
    scored = block_roles(length, config.block_size) == Role.SCORED
    noise = hide(scored, batch, copies, generator)
    rows = _make_rows(tokens, noise.hidden, config.mask_id)
    trunk = network.fold()
    context = read_blocks(trunk, tokens, config.block_size)
    attend = default_attention(tokens.device)(rows, context.length)
    logits = trunk.logits(run_rows(trunk, context, rows, attend, config.mask_id))
    nats = F.cross_entropy(logits, rows.tokens.flatten()[rows.places], reduction="none")
    weights = repeat(noise.weights, "... -> (... size)", size=config.block_size)
    weights = send(weights, tokens.device)[rows.places]
    return Cost((nats * weights).sum() / copies, tokens[:, 1:].numel())


def negative_log_likelihood(
    network: DiT, tokens: Int64[Tensor, "batch length"], generator: torch.Generator
) -> Cost:
    """Return the exact cost of each token given those before; nothing is drawn."""
    trunk = network.fold()
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    stream = trunk.run(tokens, positions, lambda _, own: attend_densely(*own, causal=True))
    logits = trunk.logits(stream[:, :-1])
    nats = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    return Cost(nats, tokens[:, 1:].numel())


def _make_rows(
    tokens: Int64[Tensor, "batch length"],
    hidden: Bool[Tensor, "batch blocks copies size"],
    mask_id: int,
) -> NoisyRows:
    """Make a row of each noisy copy of a block; positions after the end are masked."""
    batch, num_blocks, copies, size = hidden.shape
    padded = F.pad(tokens, (0, num_blocks * size - tokens.shape[1]), value=mask_id)
    flat = rearrange(hidden, "batch blocks copies size -> (batch blocks copies) size")
    rows = PlannedRows(
        block=torch.arange(batch * num_blocks).repeat_interleave(copies),
        revealed=~flat,
        needed=flat,
        num_blocks=num_blocks,
    )
    blocks = rearrange(padded, "batch (blocks size) -> (batch blocks) size", size=size)
    (everything,) = rows.micro_batches(blocks)
    return everything
