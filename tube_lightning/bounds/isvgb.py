"""IS-VG-B, the importance-sampled variational-gap bound."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.bounds.logspace import checked_scores, log_mean_exp
from tube_lightning.bounds.validity import guarantee


@guarantee("upper", bound_preserving=False)
def isvgb(scores: Float[Tensor, "*batch orderings"], pairs: int = 2) -> Float64[Tensor, "*batch"]:
    """Estimate the variational-gap upper bound on log p(x) from pairs of means, in nats.

    IS-VG-B = (1/n) sum_j log X_j + log( (1/n) sum_j Y_j / X_j )

    with n = ``pairs`` and X_1..X_n, Y_1..Y_n the means of exp s_k over 2n contiguous groups of
    s = K / (2n) orderings, all X before all Y.

    Guarantee: none at finite K; the population value (E log X + log E[Y/X]) is upper. Zeros are
    read as a common limit X -> 0: some X_j = 0 gives inf if its Y_j > 0 and -inf if not, and
    all X_j = 0 gives log mean_j Y_j.

    Reference: TUBE paper, eq. (app_isvgb_mc); Struski et al. 2023, Thm 4.
    """
    scores = checked_scores(scores, at_least=2)
    num_orderings = scores.shape[-1]
    if pairs < 1 or num_orderings % (2 * pairs):
        raise ValueError(
            f"pairs: expected n >= 1 with 2n a divisor of the {num_orderings} orderings, "
            f"got {pairs}"
        )
    log_x, log_y = log_mean_exp(scores.unflatten(-1, (2, pairs, -1))).unbind(dim=-2)
    zero_x = log_x == -math.inf
    value = log_x.mean(dim=-1) + log_mean_exp(log_y - torch.where(zero_x, 0.0, log_x))
    blows_up = (zero_x & (log_y > -math.inf)).any(dim=-1)
    value = torch.where(zero_x.any(dim=-1), torch.where(blows_up, math.inf, -math.inf), value)
    return torch.where(zero_x.all(dim=-1), log_mean_exp(log_y), value)
