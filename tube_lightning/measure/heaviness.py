"""How uneven weights are, and how heavy their tail is: pure functions of logarithms."""

import math

import torch
from jaxtyping import Float64
from torch import Tensor

LEAST_VALUES = 100
"""Fewer values give no index: they could not tell a light tail from a heavy one.

Means of k-hat over 200 Pareto samples with k = 0.5 and k = 1 are 0.60 and 0.71 (each +- 0.35) with
25 values, 0.51 and 0.80 (+- 0.2 and 0.3) with 100, 0.51 and 0.95 (+- 0.11 and 0.16) with 2,000.
"""
LEAST_EFFECTIVE_BLOCKS = 20
"""A gap that rests on fewer blocks is a warning, if their orderings are as uneven as below.

Simulated with log-normal scores (n blocks, K orderings, sd nats between orderings, log p known),
TUBE lay below log p by more than its 95% margin, nominally in 2.5% of the corpora: at n = 5 and
K = 8 to 128 in 2 to 5% with sd 2, 5 to 10% with sd 3, 6 to 20% with sd 5; at n = 20 and K = 128 in
4 to 7% with sd 3 to 5; at n = 100 and K = 128 in 13% where one block in ten has sd 4, the others
0.3. All these corpora have fewer than 20 effective blocks. Of those with more, no setting was above
2.5%, nor was any with equal sd from n = 50: there the largest blocks lift TUBE instead.
"""
LEAST_VARIATION = 1.0
"""Weights that vary less leave TUBE nearly linear in them: its mean is safe on few blocks.

With 5 to 20 blocks and K >= 8 the warning fired in all simulated corpora with sd 2 to 5, in 66 to
100% with sd 1 and 6 to 31% with sd 0.75, where the margin still held, in 1% at most with sd 0.5, in
none with sd 0.3. With 1,000 or 4,000 blocks (10 to 40 corpora a setting) it fired in none up to sd
1.5, in 0 to 8% with sd 2 and in 80 to 100% with sd 5. The Pareto index has no part in it: it is
noisy (+- 0.2), and of these corpora none with sd >= 0.5 was below its margin, at k-hat up to 4.5.
"""
_PRIOR_SHAPE, _PRIOR_VALUES = 0.5, 10
"""PSIS shrinks the shape to one half, as if ten values of the tail had said so."""


def effective_sample_size(
    log_weights: Float64[Tensor, "*batch terms"],
) -> Float64[Tensor, "*batch"]:
    """Count the terms that carry a sum of positive weights.

    ESS = (sum_k w_k)^2 / sum_k w_k^2

    Guarantee: 1 (one term has all the weight) to their number (all are equal, or all are zero).

    Reference: Kong (1992); Owen (2013), Monte Carlo theory, methods and examples, section 9.3.

    >>> effective_sample_size(torch.tensor([0.5, 0.25, 0.25]).double().log()).round(decimals=4)
    tensor(2.6667, dtype=torch.float64)
    """
    number = log_weights.shape[-1]
    log_ess = 2 * torch.logsumexp(log_weights, -1) - torch.logsumexp(2 * log_weights, -1)
    is_zero = (log_weights == -math.inf).all(-1)
    return torch.where(is_zero, number, log_ess.exp()).clamp(1, number)


def squared_variation(
    effective: Float64[Tensor, "*batch"], number: int
) -> Float64[Tensor, "*batch"]:
    """Return (sd / mean)^2 of weights, given how many of them there are and are effective.

    c^2 = (K / ESS - 1) K / (K - 1),   from 0 (all equal) to K (one has all the weight)
    """
    return (number / effective - 1) * number / (number - 1)


def share_of_first(values: Float64[Tensor, " values"], number: int) -> float | None:
    """Return the share of the first of some values, sorted downwards; None if all are zero."""
    if values[0] == math.inf:
        return 1.0
    if not values[0]:
        return None
    relative = values / values[0]  # their own sum may be too large for a float
    return (relative[:number].sum() / relative.sum()).item()


def rests_on_few(effective_blocks: float, variation: float) -> bool:
    """Tell whether TUBE's corpus mean rests on few blocks whose orderings are too uneven for it."""
    return effective_blocks < LEAST_EFFECTIVE_BLOCKS and variation > LEAST_VARIATION


def pareto_k(log_values: Float64[Tensor, " values"]) -> float | None:
    """Estimate the tail index of positive values, given by their logarithms.

    P(r > u + x | r > u) ~ (1 + k x / sigma)^(-1/k): moments of order 1/k and above are infinite,
    so that with k >= 0.5 there is no variance, and with k >= 1 no mean. The M = min(n/5, 3 sqrt n)
    largest values are the tail, the next one is u, and k is shrunk to (M k + 5) / (M + 10).

    Guarantee: consistent where the tail is a Pareto one; of other laws (log-normal ratios have all
    moments) it tells how many moments a sample of this size can be trusted with. Adding a constant
    to the logarithms changes nothing. None with fewer than ``LEAST_VALUES`` values, with
    values that are not finite, and where a quarter of the tail or more equals u: no tail.

    Reference: Zhang and Stephens (2009), Technometrics 51; Vehtari, Simpson, Gelman, Yao and Gabry
    (2024), Pareto smoothed importance sampling, JMLR 25(72).
    """
    number = len(log_values)
    if number < LEAST_VALUES or not log_values.isfinite().all():
        return None
    size = math.ceil(min(number / 5, 3 * math.sqrt(number)))
    largest = log_values.sort().values[-size - 1 :]
    log_excess = largest[1:] + torch.log(-torch.expm1(largest[0] - largest[1:]))
    quartile = log_excess[math.floor(size / 4 + 0.5) - 1]
    if quartile == -math.inf:
        return None
    shape = _profile_shape(log_excess - quartile)
    return (size * shape + _PRIOR_VALUES * _PRIOR_SHAPE) / (size + _PRIOR_VALUES)


def _profile_shape(log_excess: Float64[Tensor, " tail"]) -> float:
    """Average over theta = -k / sigma by its profile likelihood; the unit is the first quartile.

    k(theta) = mean of log(1 - theta x),   l(theta) = M (log(-theta / k) - k - 1)
    theta_j = 1 / x_max + (1 - sqrt(m / (j - 1/2))) / 3,   j = 1 ... m,   m = 30 + floor(sqrt M)
    """
    size = len(log_excess)
    points = 30 + math.isqrt(size)
    places = torch.arange(points, dtype=torch.float64) + 0.5
    theta = torch.exp(-log_excess.max()) + (1 - (points / places).sqrt()) / 3
    theta = theta[theta != 0]
    shapes = _shape_at(theta[:, None], log_excess)
    log_likelihood = size * (torch.log(-theta / shapes) - shapes - 1)
    mean_theta = (theta * log_likelihood.softmax(0)).sum()
    return _shape_at(mean_theta, log_excess).item()


def _shape_at(
    theta: Float64[Tensor, "*points"], log_excess: Float64[Tensor, " tail"]
) -> Float64[Tensor, "..."]:
    """Return the mean of log(1 - theta x), where x itself may be too large for a float."""
    log_product = theta.abs().log() + log_excess
    heavy = torch.logaddexp(log_product, torch.zeros_like(log_product))
    light = torch.log1p(-log_product.clamp(max=0).exp())
    return torch.where(theta < 0, heavy, light).mean(dim=-1)
