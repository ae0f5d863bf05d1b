"""TVO, the thermodynamic-integration upper bound."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.bounds.logspace import checked_scores
from tube_lightning.bounds.validity import guarantee


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
