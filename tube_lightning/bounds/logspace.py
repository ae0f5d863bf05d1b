"""Numerics in log space, shared by every estimator: validation, means and exclusive sums."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor


def checked_scores(
    scores: Float[Tensor, "*batch orderings"], at_least: int = 1
) -> Float64[Tensor, "*batch orderings"]:
    """Return ``scores`` in float64 after refusing what no estimator can give a meaning.

    A score of -inf (an ordering of probability zero) is a value; NaN and +inf are errors.
    """
    if not scores.is_floating_point():
        raise ValueError(f"scores: expected a floating-point tensor, got {scores.dtype}")
    if scores.ndim < 1:
        raise ValueError(f"scores: expected [..., orderings], got shape {tuple(scores.shape)}")
    if scores.shape[-1] < at_least:
        raise ValueError(
            f"scores: expected at least {at_least} ordering(s) on the last axis, "
            f"got shape {tuple(scores.shape)}"
        )
    return checked_log_density("scores", scores)


def checked_log_density(name: str, value: Float[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Return ``value`` in float64, refusing NaN and +inf with the index where they stand."""
    bad = value.isnan() | (value == math.inf)
    if bad.any():
        where = tuple(torch.nonzero(bad)[0].tolist())
        raise ValueError(
            f"{name}: expected log-densities below +inf, got {value[where].item()} at index {where}"
        )
    return value.to(torch.float64)


def log_mean_exp(values: Float64[Tensor, "*batch terms"]) -> Float64[Tensor, "*batch"]:
    """Return log( (1/n) sum_i exp v_i ) over the last axis; all -inf gives -inf."""
    return torch.logsumexp(values, dim=-1) - math.log(values.shape[-1])


def exclusive_logsumexp(
    values: Float64[Tensor, "*batch terms"],
) -> Float64[Tensor, "*batch terms"]:
    """Return, for each i, log sum_{j != i} exp v_j over the last axis.

    Prefix and suffix sums, joined: subtracting v_i from the whole sum would lose every digit
    when v_i dominates it.
    """
    nothing = torch.full_like(values[..., :1], -math.inf)
    before = torch.cat([nothing, torch.logcumsumexp(values, dim=-1)[..., :-1]], dim=-1)
    suffix = torch.logcumsumexp(values.flip(-1), dim=-1).flip(-1)
    after = torch.cat([suffix[..., 1:], nothing], dim=-1)
    return torch.logaddexp(before, after)
