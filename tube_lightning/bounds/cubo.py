"""CUBO, the chi (or Renyi) upper bound."""

import math

from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.bounds.logspace import checked_scores, log_mean_exp
from tube_lightning.bounds.validity import guarantee


@guarantee("upper", bound_preserving=False)
def cubo(scores: Float[Tensor, "*batch orderings"], beta: float = 2.0) -> Float64[Tensor, "*batch"]:
    """Estimate the chi^beta upper bound on log p(x), in nats.

    CUBO_beta = (1/beta) log( (1/K) sum_k exp(beta s_k) )

    Guarantee: none at finite K (the log of a mean is biased down); the population value is upper
    for beta >= 1 and non-decreasing in beta. Pathwise >= ELBO_K of the same orderings.

    Reference: TUBE paper, eq. (app_cubo_mc); Dieng et al. 2017; Li and Turner 2016.
    """
    if not 1 <= beta < math.inf:
        raise ValueError(f"beta: expected a finite exponent of at least 1, got {beta}")
    return log_mean_exp(beta * checked_scores(scores)) / beta
