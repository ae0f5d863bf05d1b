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
    finite = torch.where(possible, scores, 0.0)
    total = torch.zeros_like(scores[..., 0])
    for step in range(1, partitions + 1):  # one [..., orderings] buffer, whatever the grid
        total = total + ((step / partitions * scores).softmax(dim=-1) * finite).sum(dim=-1)
    return torch.where(possible.any(dim=-1), total / partitions, -math.inf)
