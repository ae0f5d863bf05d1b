"""The evidence lower bounds: ELBO and its multi-sample tightening ELBO_K."""

from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.bounds.logspace import checked_scores, log_mean_exp
from tube_lightning.bounds.validity import guarantee


@guarantee("lower", bound_preserving=True)
def elbo(scores: Float[Tensor, "*batch orderings"]) -> Float64[Tensor, "*batch"]:
    """Lower-bound log p(x) by the mean reveal-order score, in nats.

    ELBO = (1/K) sum_k s_k,   s_k = log p(x | order_k)

    Guarantee: lower, in expectation, for every K. One ordering at -inf makes it -inf.

    Reference: TUBE paper, eq. (ao_arm_elbo) and (mdm_elbo).

    >>> elbo(torch.tensor([-2.0, -4.0])).item()
    -3.0
    """
    return checked_scores(scores).mean(dim=-1)


@guarantee("lower", bound_preserving=True)
def elbo_k(scores: Float[Tensor, "*batch orderings"]) -> Float64[Tensor, "*batch"]:
    """Lower-bound log p(x) from K reveal-order scores, in nats.

    ELBO_K = log( (1/K) sum_k exp s_k ),   s_k = log p(x | order_k)

    Guarantee: lower, in expectation, and non-decreasing in K (Burda et al. 2016, Thm 1). A single
    draw may exceed log p(x). Exact when the K orderings are the whole prior. -inf only when every
    ordering is at -inf.

    Reference: TUBE paper, Table "estimator zoo"; Burda et al. 2016.

    >>> round(elbo_k(torch.tensor([0.5, 0.25]).log()).exp().item(), 6)
    0.375
    """
    return log_mean_exp(checked_scores(scores))
