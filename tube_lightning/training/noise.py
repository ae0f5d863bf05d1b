"""Which tokens a training step hides, and what each hidden one counts for.

Two ways to draw from the same objective, the negative any-order ELBO:

- `hide_by_count`: each block draws how many of its tokens hide, 1 to all of them alike, then which.
  Every row teaches something, and all rows weigh the same.
- `hide_by_time`: each block draws a time t, and its tokens hide independently with probability t:
  the original of MDLM and BD3-LM, with their clipped times.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Noise(NamedTuple):
    """Some noisy copies of every block of a batch."""

    hidden: Bool[Tensor, "batch blocks copies size"]
    weights: Float[Tensor, "batch blocks copies"]
    """The factor of the nats of a copy's hidden tokens; the mean over copies is the cost."""


@runtime_checkable
class Hide(Protocol):
    """A way to draw noise."""

    def __call__(
        self,
        scored: Bool[Tensor, "blocks size"],
        batch: int,
        copies: int,
        generator: torch.Generator,
    ) -> Noise:
        """Hide some of the scored positions in copies of the blocks of ``batch`` sequences."""
        ...


def hide_by_count(
    scored: Bool[Tensor, "blocks size"], batch: int, copies: int, generator: torch.Generator
) -> Noise:
    """Hide m of a block's n scored tokens, m uniform in 1..n, and all sets of m alike.

    -ELBO = E_m E_{|S| = n - m} [ n/m sum_{d not in S} -log p(x_d | x_S) ]

    Guarantee: unbiased for the any-order ELBO. The copies of a block have counts from different
    parts of 1..n, and so have the blocks of a batch.
    Reference: Uria et al. 2014 (order-agnostic training), eq. 9; Ou et al. 2025 (RADD), eq. 3.5.
    """
    num_blocks, size = scored.shape
    num_scored = scored.sum(dim=-1)[None, :, None]
    unit = stratified_uniform(batch * num_blocks, copies, generator).view(batch, num_blocks, copies)
    counts = (1 + (unit * num_scored).floor()).clamp(max=num_scored.clamp(min=1))
    shape = (batch, num_blocks, copies, size)
    priority = torch.rand(shape, generator=generator, device=generator.device)
    priority = priority.masked_fill(~scored[:, None], torch.inf)
    rank = priority.argsort(dim=-1).argsort(dim=-1)
    hidden = (rank < counts[..., None]) & scored[:, None]
    return Noise(hidden, num_scored / counts)


def hide_by_time(
    scored: Bool[Tensor, "blocks size"],
    batch: int,
    copies: int,
    generator: torch.Generator,
    *,
    min_time: float = 1e-3,
    max_time: float = 1.0,
) -> Noise:
    """Hide each scored token of a block with the block's own probability t, and weigh by 1/t.

    Guarantee: unbiased for the any-order ELBO if t is drawn from all of (0, 1]. A clipped interval
    is biased, and lowers the variance of training (BD3-LM, section 5).
    Reference: Sahoo et al. 2024 (MDLM), eq. 10; Arriola et al. 2025 (BD3-LM), eq. 7.
    """
    if not 0 <= min_time < max_time <= 1:
        raise ValueError(
            f"min_time, max_time: expected 0 <= min < max <= 1, got {min_time} and {max_time}"
        )
    num_blocks, size = scored.shape
    unit = stratified_uniform(batch * num_blocks, copies, generator).view(batch, num_blocks, copies)
    times = max_time - (max_time - min_time) * unit  # never 0
    shape = (batch, num_blocks, copies, size)
    draws = torch.rand(shape, generator=generator, device=generator.device)
    return Noise((draws < times[..., None]) & scored[:, None], 1 / times)


def stratified_uniform(
    count: int, copies: int, generator: torch.Generator
) -> Float[Tensor, "count copies"]:
    """Draw numbers in [0, 1), one in each of ``count * copies`` equal strata.

    Each is uniform; together they cover the interval evenly, which lowers the variance. The copies
    of an item are in different parts of ``copies`` equal ones, in random order.
    """
    device = generator.device

    def shuffles(rows: int, columns: int) -> Tensor:
        return torch.rand(rows, columns, generator=generator, device=device).argsort(dim=-1)

    parts, strata = shuffles(count, copies), shuffles(copies, count).mT
    offset = torch.rand(count, copies, generator=generator, device=device)
    stratum = parts * count + strata.gather(1, parts)
    return ((stratum + offset) / (count * copies)).clamp(max=1 - 2**-24)
