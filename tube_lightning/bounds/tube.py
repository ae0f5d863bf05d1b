"""TUBE, the tangent upper bound on evidence, and the ways to find its surrogate psi in the draws.

All of them evaluate log psi + p_hat/psi - 1. They differ in which orderings make psi and which
make p_hat; the two must never overlap, for the bound rests on their independence. Calling one gives
its value; its ``terms`` (as in ``tube_loo.terms(scores)``) are the same in two parts.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.bounds.logspace import (
    checked_log_density,
    checked_scores,
    exclusive_logsumexp,
    log_mean_exp,
)
from tube_lightning.bounds.validity import made_of_terms


class TangentTerms(NamedTuple):
    """A tangent bound in two parts a fold, for sums of ratios that stay in log space.

    Where psi = 0 the limit is all in ``log_psi``.
    """

    log_psi: Float64[Tensor, "... folds"]
    log_ratio: Float64[Tensor, "... folds"]

    @staticmethod
    def of(
        log_p_hat: Float64[Tensor, "... #folds"], log_psi: Float64[Tensor, "... #folds"]
    ) -> "TangentTerms":
        """Take the tangent of log at psi, in p_hat."""
        at_zero = torch.where(log_p_hat == -math.inf, log_p_hat, math.inf)
        is_zero = log_psi == -math.inf
        return TangentTerms(
            log_psi=torch.where(is_zero, at_zero, log_psi),
            log_ratio=torch.where(is_zero, 0.0, log_p_hat - log_psi),
        )

    def value(self) -> Float64[Tensor, "..."]:
        """Return log psi + p_hat / psi - 1, averaged over folds."""
        return (self.log_psi + torch.expm1(self.log_ratio)).mean(dim=-1)

    def averages(self) -> tuple[Float64[Tensor, "..."], Float64[Tensor, "..."]]:
        """Return the means m of log psi and r of p_hat / psi (in log): m + exp(r) - 1 is value."""
        return self.log_psi.mean(dim=-1), log_mean_exp(self.log_ratio)


@made_of_terms("upper", bound_preserving=True)
def tube(
    scores: Float[Tensor, "*#batch orderings"], log_psi: Float[Tensor, "*#batch"]
) -> TangentTerms:
    """Upper-bound log p(x) by the tangent of log at a surrogate psi(x), in nats.

    TUBE_psi = log psi + p_hat / psi - 1,   p_hat = (1/K) sum_k exp s_k

    Guarantee: upper, in expectation, for every K and every psi that is independent of the scores;
    tight as psi approaches p. The ratio is never clipped: where it overflows the value is inf. At
    psi = 0 it is the limit: inf if p_hat > 0, -inf if p_hat = 0 as well.

    Reference: TUBE paper, eq. (tube) and (tube_mc), Prop. (tube_variance).

    >>> scores = torch.tensor([0.5, 0.25]).log()
    >>> round(tube(scores, log_psi=torch.tensor(0.375).log()).exp().item(), 6)  # psi = p_hat
    0.375
    """
    log_psi = checked_log_density("log_psi", log_psi)
    return TangentTerms.of(log_mean_exp(checked_scores(scores))[..., None], log_psi[..., None])


@made_of_terms("upper", bound_preserving=True)
def tube_split(scores: Float[Tensor, "*batch orderings"]) -> TangentTerms:
    """Upper-bound log p(x) with psi from the first half of the orderings and p_hat from the rest.

    TUBE_split = log psi + p_hat / psi - 1,   psi = mean of the first floor(K/2) exp s_k

    Guarantee: upper, in expectation, for iid orderings (and for the two halves of a shuffled
    complete enumeration). A single draw may fall below ELBO_K of the same orderings. Needs K >= 2.

    Reference: TUBE paper, Table "estimator hyperparameters", row TUBE (split B/2 + B/2).
    """
    scores = checked_scores(scores, at_least=2)
    half = scores.shape[-1] // 2
    log_p_hat, log_psi = log_mean_exp(scores[..., half:]), log_mean_exp(scores[..., :half])
    return TangentTerms.of(log_p_hat[..., None], log_psi[..., None])


@made_of_terms("upper", bound_preserving=True)
def tube_kfold(scores: Float[Tensor, "*batch orderings"], folds: int) -> TangentTerms:
    """Upper-bound log p(x) by cross-fitting: each fold is p_hat once, against psi of the others.

    TUBE_kfold = (1/F) sum_f ( log psi_f + p_f / psi_f - 1 ),
    p_f = mean of exp s_k in fold f,   psi_f = mean of exp s_k outside fold f

    Guarantee: upper, in expectation, for iid orderings; and pathwise >= ELBO_K of the same
    orderings, so a bracket made of the two never crosses. inf when a single fold carries all the
    probability. Folds are contiguous and of equal size: ``folds`` must divide K.

    Reference: TUBE paper, eq. (tube) and (psi_mc), averaged over folds.
    """
    scores = checked_scores(scores, at_least=2)
    num_orderings = scores.shape[-1]
    if not 2 <= folds <= num_orderings or num_orderings % folds:
        raise ValueError(
            f"folds: expected a divisor of the {num_orderings} orderings that is at least 2, "
            f"got {folds}"
        )
    fold_sums = torch.logsumexp(scores.unflatten(-1, (folds, -1)), dim=-1)
    fold_size = num_orderings // folds
    log_p_hat = fold_sums - math.log(fold_size)
    log_psi = exclusive_logsumexp(fold_sums) - math.log(num_orderings - fold_size)
    return TangentTerms.of(log_p_hat, log_psi)


@made_of_terms("upper", bound_preserving=True)
def tube_loo(scores: Float[Tensor, "*batch orderings"]) -> TangentTerms:
    """Upper-bound log p(x) by leave-one-out: the k-fold bound with one ordering a fold.

    TUBE_loo = (1/K) sum_k ( log psi_k + exp(s_k) / psi_k - 1 ),
    psi_k = mean of exp s_j over j != k

    Guarantee: upper, in expectation, for iid orderings; and pathwise >= ELBO_K of the same
    orderings. The default: the tightest use of K orderings. Needs K >= 2.

    Reference: as ``tube_kfold``.

    >>> scores = torch.tensor([-3.0, -3.5, -2.5, -3.2])
    >>> [round(bound(scores).item(), 3) for bound in (elbo_k, tube_loo, tube_split)]
    [-2.982, -2.917, -2.683]
    """
    return tube_kfold.terms(scores, folds=scores.shape[-1] if scores.ndim else 1)
