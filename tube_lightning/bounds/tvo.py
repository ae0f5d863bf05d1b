"""TVO, the thermodynamic-integration upper bound."""

import math

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from tube_lightning.bounds.logspace import checked_scores
from tube_lightning.bounds.validity import guarantee

_SAFE_RANGE = 600.0
"""exp(-600) is a normal float64, and so are sums of it: no digit is lost."""
_MAX_ELEMENTS = 1 << 18
"""Blocks are taken in slices of about this many float64 numbers (2 MiB)."""


@guarantee("upper", bound_preserving=False)
def tvo_upper(
    scores: Float[Tensor, "*batch orderings"], partitions: int = 200
) -> Float64[Tensor, "*batch"]:
    """Estimate the thermodynamic upper bound on log p(x) by a right Riemann sum, in nats.

    TVO_U = (1/P) sum_{l=1..P} sum_k w_k(l/P) s_k,   w_k(b) = exp(b s_k) / sum_j exp(b s_j)

    Guarantee: none at finite K (self-normalised weights are biased); the population value is
    upper. Pathwise >= ELBO_K of the same orderings. An ordering at -inf has weight zero and adds
    nothing; all at -inf give -inf.

    Reference: TUBE paper, eq. (app_tvo_mc_upper); Masrani et al. 2019.
    """
    if partitions < 1:
        raise ValueError(f"partitions: expected at least 1, got {partitions}")
    scores = checked_scores(scores)
    possible = scores > -math.inf
    largest = torch.where(possible, scores, -math.inf).amax(dim=-1, keepdim=True)
    below = torch.where(possible, scores - largest, 0.0)  # of impossible ones the weight is zero
    ratio = torch.where(possible, (below / partitions).exp(), 0.0)
    weight, total = ratio, torch.zeros_like(scores[..., 0])
    for _ in range(partitions):  # weight = exp(l/P s), up to a factor that the quotient forgets
        total = total + (weight * below).sum(dim=-1) / weight.sum(dim=-1)
        weight = weight * ratio
    return torch.where(possible.any(dim=-1), largest[..., 0] + total / partitions, -math.inf)


def tvo_of_resamples(
    bank: Float64[Tensor, "batch blocks orderings"],
    places: Int64[Tensor, "reseeds batch blocks orderings"],
    partitions: int,
) -> Float64[Tensor, "reseeds batch blocks"]:
    """Return ``tvo_upper`` of every resample of a bank, exponentiating it once for all of them.

    A resample is the bank with counts n_k, so each point b of the grid needs two products with
    the same powers: TVO_U = mean_b ( sum_k n_k s_k e^(b s_k) / sum_k n_k e^(b s_k) ). Blocks whose
    scores spread so far that powers would underflow take the plain way.
    """
    num_reseeds, batch, blocks, num = places.shape
    places = places.flatten(1, 2).transpose(0, 1)
    scores = bank.flatten(0, 1)
    lowest = scores.min(dim=-1).values
    safe = scores.max(dim=-1).values - lowest < _SAFE_RANGE
    values = scores.new_empty(len(scores), num_reseeds)
    plain = scores[~safe][:, None].expand(-1, num_reseeds, -1).gather(-1, places[~safe])
    values[~safe] = tvo_upper(plain, partitions)
    rows = max(1, _MAX_ELEMENTS // (num * partitions))
    done = [
        _tvo_of_counts(some, where, partitions)
        for some, where in zip(scores[safe].split(rows), places[safe].split(rows), strict=True)
    ]
    values[safe] = torch.cat(done)
    return values.T.reshape(num_reseeds, batch, blocks)


def _tvo_of_counts(
    scores: Float64[Tensor, "rows orderings"],
    places: Int64[Tensor, "rows reseeds orderings"],
    partitions: int,
) -> Float64[Tensor, "rows reseeds"]:
    """Evaluate the formula of ``tvo_of_resamples`` on finite scores."""
    counts = torch.zeros(places.shape, dtype=torch.float64, device=scores.device)
    counts.scatter_add_(-1, places, torch.ones_like(counts))
    largest = scores.max(dim=-1, keepdim=True).values
    shifted = scores - largest
    grid = torch.arange(1, partitions + 1, dtype=torch.float64, device=scores.device) / partitions
    powers = torch.exp(shifted[:, :, None] * grid)  # [rows, orderings, partitions]
    below = counts @ powers  # [rows, reseeds, partitions]
    above = (counts * shifted[:, None]) @ powers
    return largest + (above / below).mean(dim=-1)
