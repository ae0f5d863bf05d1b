"""What training minimises: nats of a batch under one draw of noise, and the tokens it counts.

- ``nelbo``: block diffusion (two streams) and full-sequence masked diffusion (its one-block case).
  Block b of a sequence draws a time t; its tokens hide independently with probability t; every
  hidden token costs -log p / t. The expectation is the negative any-order ELBO.
- ``negative_log_likelihood``: an autoregressive model.

Token 0 is given: it is never hidden and not counted.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import repeat
from jaxtyping import Float, Int64
from torch import Tensor

from tube_lightning.networks import DiT, Trunk, attend_densely


class Cost(NamedTuple):
    """A sum and what to divide it by: batches of any size add up."""

    sum_nats: Float[Tensor, ""]
    num_tokens: int


def nelbo(
    network: DiT,
    tokens: Int64[Tensor, "batch length"],
    generator: torch.Generator,
    *,
    min_time: float = 1e-3,
    max_time: float = 1.0,
) -> Cost:
    """Draw one noisy version of each sequence and return its weighted cost.

    Times outside [``min_time``, ``max_time``] are not drawn: a clipped interval lowers the
    variance of training (BD3-LM, section 5), the whole of (0, 1] makes the cost unbiased.

    Reference: Sahoo et al. 2024 (MDLM), eq. 10; Arriola et al. 2025 (BD3-LM), eq. 7.
    """
    if not 0 <= min_time < max_time <= 1:
        raise ValueError(
            f"min_time, max_time: expected 0 <= min < max <= 1, got {min_time} and {max_time}"
        )
    config, (batch, length) = network.config, tokens.shape
    num_blocks = -(-length // config.block_size)
    unit = antithetic_uniform(batch * num_blocks, generator)
    times = (max_time - (max_time - min_time) * unit).view(batch, num_blocks)  # never 0
    times = repeat(times, "batch blocks -> batch (blocks size)", size=config.block_size)
    times = times[:, :length]
    hidden = torch.rand(tokens.shape, generator=generator, device=generator.device) < times
    hidden[:, 0] = False
    noisy = tokens.masked_fill(hidden, config.mask_id)
    trunk = network.fold()
    stream = (
        _run_two_streams(trunk, noisy, tokens, config.block_size)
        if config.cross_attn
        else _run_one_stream(trunk, noisy, causal=False)
    )
    logits = trunk.logits(stream[hidden])
    nats = F.cross_entropy(logits, tokens[hidden], reduction="none")
    return Cost((nats / times[hidden]).sum(), tokens[:, 1:].numel())


def negative_log_likelihood(
    network: DiT, tokens: Int64[Tensor, "batch length"], generator: torch.Generator
) -> Cost:
    """Return the exact cost of each token given those before; nothing is drawn."""
    trunk = network.fold()
    logits = trunk.logits(_run_one_stream(trunk, tokens, causal=True)[:, :-1])
    nats = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    return Cost(nats, tokens[:, 1:].numel())


def antithetic_uniform(count: int, generator: torch.Generator) -> Float[Tensor, " count"]:
    """Draw numbers in [0, 1), one in each of ``count`` equal strata, in random order of strata.

    Each is uniform; together they cover the interval evenly, which lowers the variance.
    """
    device = generator.device
    strata = torch.randperm(count, generator=generator, device=device)
    offset = torch.rand(count, generator=generator, device=device)
    return ((strata + offset) / count).clamp(max=1 - 2**-24)


def _run_one_stream(
    trunk: Trunk, tokens: Int64[Tensor, "batch length"], *, causal: bool
) -> Float[Tensor, "batch length dim"]:
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    return trunk.run(tokens, positions, lambda _, own: attend_densely(*own, causal=causal))


def _run_two_streams(
    trunk: Trunk,
    noisy: Int64[Tensor, "batch length"],
    clean: Int64[Tensor, "batch length"],
    block_size: int,
) -> Float[Tensor, "batch length dim"]:
    """Run [noisy ; clean]: noisy sees its own block and the clean ones before, clean sees clean."""
    length = clean.shape[1]
    positions = torch.arange(length, device=clean.device)
    block = positions // block_size
    same, before = block[:, None] == block, block[:, None] > block
    sees = torch.cat(
        [
            torch.cat([same, before], dim=1),
            torch.cat([torch.zeros_like(same), same | before], dim=1),
        ]
    )
    both = torch.cat([noisy, clean], dim=1)
    stream = trunk.run(both, positions.repeat(2), lambda _, own: attend_densely(*own, sees))
    return stream[:, :length]
