"""Which of a few texts is likelier, from sampled orderings: choices of a question, two texts.

A bracket [ELBO_K, TUBE] does not say it: both of its ends are made of the same draws, so that its
width shrinks like 1/K and the error of either end like 1/sqrt(K) only. What chance made of one text
is seen by drawing again from its orderings.

>>> sure = [Choice(exact_nats=-3.0), Choice(exact_nats=-2.0)]
>>> decide(sure).winner
1
>>> few = Choice(scores=torch.tensor([[-1.0, -9.0, -2.0, -1.5, -3.0, -8.0, -2.5, -1.0]]))
>>> decide([Choice(exact_nats=-2.0), few]).winner is None  # 0.4 nats apart, from 8 orderings
True
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.bounds import elbo_k
from tube_lightning.checks import check_whole_number
from tube_lightning.randomness import RESAMPLES, uniforms

LogMean = Callable[[Tensor], Tensor]
"""Scores ``[..., orderings]`` to log p."""
LEAST_ORDERINGS = 8
"""With fewer a sampled choice is never decided: 4 draws of 2 orderings are all the same in 1/8."""
_LEAST_RESAMPLES = 100
_ROUNDING = 1e-6
"""Differences below so many nats are rounding: networks compute in fp32."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A text whose log-likelihood is a sum over blocks, exact or sampled, in nats.

    ``exact_nats`` sums the blocks that are known exactly (the lattice); ``scores`` holds
    log p(block | ordering) of iid orderings for each of the others. ``length`` divides the sum,
    where texts are to be compared by nats a token or a character (lm-eval's acc_norm).
    """

    exact_nats: float = 0.0
    scores: Float[Tensor, "blocks orderings"] | None = None
    length: int | float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no log-likelihood."""
        if not self.exact_nats < math.inf:  # NaN neither
            raise ValueError(f"exact_nats: expected nats below +inf, got {self.exact_nats}")
        if not 0 < self.length < math.inf:
            raise ValueError(f"length: expected a finite number above 0, got {self.length}")
        if self.scores is not None:
            if not isinstance(self.scores, Tensor):
                raise ValueError(f"scores: expected a tensor, got {type(self.scores).__name__}")
            if self.scores.ndim != 2:
                shape = tuple(self.scores.shape)
                raise ValueError(f"scores: expected [blocks, orderings], got shape {shape}")
            elbo_k(self.scores)  # refuses NaN, +inf, whole numbers and no ordering

    @property
    def sampled(self) -> Float64[Tensor, "blocks orderings"]:
        """The scores that matter, sorted: a zero probability is one whatever the others are."""
        if self.scores is None or self.exact_nats == -math.inf:
            return torch.empty(0, 1, dtype=torch.float64)
        return self.scores.detach().cpu().double().sort(dim=-1).values

    def value(self, estimate: "LogMean") -> float:
        """Return the log-likelihood by an estimate of the sampled blocks, divided by length."""
        return (self.exact_nats + estimate(self.sampled).sum().item()) / self.length


@dataclass(frozen=True)
class Decision:
    """Which choice is likeliest, if that can be said."""

    winner: int | None
    """its place; None if undecided"""
    best: int
    """the place of the largest value, decided or not (the first of equals)"""
    support: float
    """the least share of resamples, over the four ways to read them, in which ``best`` is alone
    at the top; 0 with fewer than ``LEAST_ORDERINGS``; 1 or 0 (a tie) where all is exact"""
    exact: bool
    """whether no choice is sampled"""
    nats: tuple[float, ...]
    """the choices' values: nats, divided by their lengths"""


def decide(
    choices: Sequence[Choice],
    *,
    seed: int = 0,
    item: int = 0,
    confidence: float = 0.95,
    num_resamples: int = 1000,
) -> Decision:
    """Decide which choice is likeliest: exactly where all are exact, else by resampling orderings.

    Draw K of the K orderings of each block with replacement, and let e be an estimate of log p:

        d = (e(resample) - e(scores)) sqrt(K / (K - 1)) sqrt((K - 1) / chi2_{K-1})

    A choice's value moves by the sum of d over its blocks, or by minus that sum. Decided if the
    best choice stays strictly above all others in ``confidence`` of the resamples, both ways, for
    both e: log-mean-exp, and mean + variance / 2, which is log p for Gaussian scores.

    Guarantee: none at finite K. Measured at 0.95 (``benchmarks.decisions``): of the decided at most
    5% were wrong, except beside an exact choice for scores of 3 nats standard deviation (10% at
    K = 8, 6% at 16, 1% at 32). Among near ties about half of whatever is decided is wrong: 3 to 5%
    of those questions, up to 8% with such tails at K = 8. An ordering that holds much of p and was
    not drawn is in no resample: near ties of such scores were wrong in up to 20%.

    (seed, item) names the random numbers; the order of choices and of orderings does not enter.

    Reference: Efron and Tibshirani 1993, ch. 13; the second e and the chi2 as in Krishnamoorthy and
    Mathew 2003, for means of lognormals. Percentiles of log-mean-exp alone are too sure where K is
    small or tails are heavy: they go down with the estimate.
    """
    _check_settings(choices, confidence, num_resamples)
    nats = tuple(choice.value(elbo_k) for choice in choices)
    best = max(range(len(nats)), key=nats.__getitem__)
    num_orderings = [scores.shape[1] for scores in (c.sampled for c in choices) if len(scores)]
    if min(num_orderings, default=LEAST_ORDERINGS) < LEAST_ORDERINGS:
        support = 0.0
    else:
        moves = _moves(choices, nats, seed, item, num_resamples if num_orderings else 1)
        support = _support(choices, best, moves)
    winner = best if support >= confidence else None
    return Decision(winner, best, support, not num_orderings, nats)


def _check_settings(choices: Sequence[Choice], confidence: float, num_resamples: int) -> None:
    for choice in choices:
        if not isinstance(choice, Choice):
            raise ValueError(
                f"choices: expected Choice(exact_nats=..., scores=...), got {choice!r}"
            )
    if len(choices) < 2:
        raise ValueError(f"choices: expected at least 2, got {len(choices)}")
    if not 0.5 < confidence <= 1:
        raise ValueError(f"confidence: expected above 0.5 and at most 1, got {confidence}")
    check_whole_number("num_resamples", num_resamples, _LEAST_RESAMPLES)


def _second_order(scores: Float64[Tensor, "*batch orderings"]) -> Float64[Tensor, "*batch"]:
    """Estimate log p by the mean plus half the variance: where tails lead that no draw has shown.

    Orderings of probability zero count by their share.
    """
    possible = scores > -math.inf
    number = possible.sum(dim=-1)
    finite = torch.where(possible, scores, 0.0)
    mean = finite.sum(dim=-1) / number.clamp(min=1)
    squares = torch.where(possible, finite - mean[..., None], 0.0).square().sum(dim=-1)
    share = number.double() / scores.shape[-1]
    return share.log() + mean + squares / (number - 1).clamp(min=1) / 2


_ESTIMATES: tuple[LogMean, ...] = (elbo_k, _second_order)


def _moves(
    choices: Sequence[Choice], nats: Sequence[float], seed: int, item: int, num_resamples: int
) -> Float64[Tensor, "estimates resamples choices"]:
    """Sum the blocks' deviations; the likelier of two choices has the earlier random numbers."""
    moves = torch.zeros(len(_ESTIMATES), num_resamples, len(choices), dtype=torch.float64)
    place = 0
    for index in sorted(range(len(choices)), key=nats.__getitem__, reverse=True):
        for scores in choices[index].sampled:
            moves[:, :, index] += _deviations(scores, seed, item, place, num_resamples)
            place += 1
        moves[:, :, index] /= choices[index].length
    return moves


def _deviations(
    scores: Float64[Tensor, " orderings"], seed: int, item: int, place: int, num_resamples: int
) -> Float64[Tensor, "estimates resamples"]:
    """Resample a block: how far the estimates move, with the tails of Student's t."""
    count = len(scores)
    drawn = uniforms(RESAMPLES, seed, item, place, num_resamples * (2 * count - 1))
    draws = torch.from_numpy(drawn).view(num_resamples, -1)
    resamples = scores[(draws[:, :count] * count).long()]
    chi2 = torch.special.ndtri(draws[:, count:]).square().sum(dim=-1)
    moves = torch.stack([estimate(resamples) - estimate(scores) for estimate in _ESTIMATES])
    widen: Float64[Tensor, " resamples"] = (count / chi2).sqrt()
    return torch.where(moves.isnan(), 0.0, moves) * widen  # NaN: all at -inf, before and after


def _support(
    choices: Sequence[Choice], best: int, moves: Float64[Tensor, "estimates resamples choices"]
) -> float:
    """Return the least share of resamples with the best choice alone at the top."""
    values = torch.tensor([[c.value(e) for c in choices] for e in _ESTIMATES], dtype=torch.float64)
    values = values[:, None]  # [estimates, 1, choices]
    shares = []
    for drawn in (values + moves, values - moves):
        drawn = torch.where(values == -math.inf, values, drawn)
        others = drawn.index_fill(-1, torch.tensor([best]), -math.inf).amax(dim=-1)
        alone = drawn[..., best] - others > _ROUNDING / choices[best].length
        shares.append(alone.double().mean(dim=-1).min().item())
    return min(shares)
