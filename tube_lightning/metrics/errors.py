"""Standard errors of nats per token where neighbouring sequences of text are not independent.

A corpus value is a ratio of sums, rate = sum(nats) / sum(tokens). Windows of one document are
alike, so errors go by documents; where these are not known, by slow waves along the text. Either
way the error comes with degrees of freedom, and margins and p-values are Student's t of the two.
The rules were chosen by simulation: ``tests/test_coverage_simulation.py`` holds them to it.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

from tube_lightning.metrics.intervals import one_sided_p, t95

FEWEST_DOCUMENTS = 3.0
"""The least effective number of documents, degrees + 1, for an interval. With fewer, t95 is above
4.3, and the level is lost as soon as one document holds most of the text."""

FEWEST_SEQUENCES = 24
"""The least number of sequences for an interval without documents: at an autocorrelation of 0.6
of neighbours, 24 keep 5.5% wrong winners at nominal 5%, 20 not surely 6%, 16 make it 8%."""

NUM_SLOW_WAVES = 3
"""Waves slow enough to see long documents nobody told us of. Where one of 100 unknown documents
(2,000 sequences) holds 40%, 3 make 4% wrong winners, 4 make 7%, the fast ones alone 47%."""

FEWEST_FAST_WAVES = 5

_WAVES_AT_ONCE = 64
"""All waves of a million sequences at once would take tens of gigabytes."""

BETTER_INFORMED = 2.0
"""Sequences have a say beside documents from this many times their degrees. The larger of two
equally uncertain errors is too large: 1 to 2% wrong winners for 30 documents of one window."""

Method = Literal["documents", "sequences", "independent", "none"]
"""Errors over documents, along the text, as if sequences were independent, or not at all."""


class TextSums(NamedTuple):
    """Nats and scored tokens of pieces of text (sequences, or documents), in the text's order."""

    nats: Float64[Tensor, "quantities pieces"]
    tokens: Shaped[Tensor, " pieces"]


class RateError(NamedTuple):
    """The standard error of nats per token and its degrees of freedom: NaN if they are unknown."""

    standard_error: float
    degrees: float
    method: Method
    effective_sequences: float
    """n times (variance if sequences were independent) / (this variance), within [1, n]."""

    @staticmethod
    def unknown() -> "RateError":
        """Make the error of which nothing can be told."""
        return RateError(torch.nan, torch.nan, "none", torch.nan)

    @property
    def margin(self) -> float:
        """Half the width of the 95% interval."""
        return t95(self.degrees) * self.standard_error

    def one_sided_p(self, estimate: float) -> float:
        """Return the p-value of the estimate against "it is zero or less"."""
        return one_sided_p(estimate, self.standard_error, self.degrees)


class _Errors(NamedTuple):
    standard_errors: Float64[Tensor, " quantities"]
    degrees: float


def rate_errors(sequences: TextSums, documents: TextSums | None = None) -> list[RateError]:
    """Return the error of each quantity's sum(nats) / sum(tokens).

    - Two documents or more: ``cluster_errors`` over documents, if they are worth at least
      FEWEST_DOCUMENTS. Where the sequences have BETTER_INFORMED times the degrees (one document
      holds much of the text) the larger margin of that and of ``wave_errors`` with fast waves.
    - One document, or unknown ones: the larger margin of ``wave_errors`` with NUM_SLOW_WAVES and
      with fast waves, from FEWEST_SEQUENCES on.
    - Else, for a single sequence, and for infinite nats: "none", NaN.

    Guarantee: at most 6% wrong winners at nominal 5% in the simulation's scenarios. Not where long
    documents are unknown and few (up to 7% for ten of 100 sequences each; for two or three up to
    11% of 40 each, 19% of 100), nor where sequences are skewed like a log-normal (8% for six
    documents, 6.5% for 30). One document's interval says nothing of other documents.
    """
    sequences = _counted(sequences)
    documents = None if documents is None else _counted(documents)
    if documents is not None:
        _check_same_text(sequences, documents)
    candidates = _candidates(sequences, documents)
    num_sequences = len(sequences.tokens)
    if not candidates:
        return [RateError.unknown()] * len(sequences.nats)
    margins = torch.stack([t95(found.degrees) * found.standard_errors for _, found in candidates])
    independent = cluster_errors(sequences)[0]
    errors = []
    for quantity, widest in enumerate(margins.argmax(dim=0).tolist()):
        method, found = candidates[widest]
        error = found.standard_errors[quantity].item()
        if not 0 <= error < torch.inf:
            errors.append(RateError.unknown())
            continue
        naive = independent[quantity].item()
        effective = num_sequences * (naive / error) ** 2 if error > 0 else num_sequences
        effective = float(min(max(effective, 1), num_sequences))
        errors.append(RateError(error, found.degrees, method, effective))
    return errors


def cluster_errors(pieces: TextSums) -> tuple[Float64[Tensor, " quantities"], float]:
    """Return the errors over independent pieces of text of any sizes, and their degrees.

    variance = sum_g r_g^2 / (1 - w_g) / N^2,   r_g = nats_g - rate * tokens_g,   w_g = tokens_g / N
    degrees = 1 / ( sum_g w_g^2 + (sum_g u_g)^2 - sum_g u_g^2 ),   u_g = w_g^2 / (1 - w_g)

    Guarantee: unbiased, with Satterthwaite's degrees, where the variance of a piece's nats is in
    proportion to its tokens; G pieces of one size give G - 1 degrees and the jackknife's variance.
    The jackknife's own 1 / (1 - w_g)^2 is too wide where one piece holds 40% of the text.
    Reference: Bell and McCaffrey (2002), "CR2"; Imbens and Kolesar (2016).
    """
    residuals, shares = _residuals(pieces)
    if len(shares) < 2:
        return torch.full_like(residuals[:, 0], torch.nan), torch.nan
    rest = 1 - shares
    products = shares.square() / rest
    squares = shares.square().sum() + products.sum().square() - products.square().sum()
    return (residuals.square() / rest).sum(dim=1).sqrt(), (1 / squares).item()


def wave_errors(
    sequences: TextSums, num_waves: int
) -> tuple[Float64[Tensor, " quantities"], float]:
    """Return the errors over sequences that depend on neighbours, from slow waves along the text.

    variance = (1/B) sum_j ( sqrt(2) sum_i cos(pi j z_i) r_i )^2 / N^2,   B = num_waves = degrees
    r_i = nats_i - rate * tokens_i,   z_i = the middle of sequence i as a share of the tokens

    Guarantee: exact for independent Gaussian sequences of one length; otherwise as far as the
    spectrum of the nats is level over frequencies up to B half-waves a text.
    Reference: Mueller (2007); Lazarus, Lewis, Stock and Watson (2018), "EWC".
    """
    residuals, shares = _residuals(sequences)
    middles = shares.cumsum(dim=0) - shares / 2
    half_waves = torch.arange(1, num_waves + 1, dtype=torch.float64, device=middles.device)
    squares = torch.zeros_like(residuals[:, 0])
    for some in half_waves.split(_WAVES_AT_ONCE):
        waves = torch.cos(torch.pi * torch.outer(middles, some))
        squares += (residuals @ waves).square().sum(dim=1)
    return (2 * squares / num_waves).sqrt(), float(num_waves)


def num_fast_waves(num_sequences: int) -> int:
    """Return 0.4 n^(2/3), which Lazarus et al. (2018) recommend, or the fewest.

    >>> [num_fast_waves(n) for n in (24, 50, 200, 900)]
    [5, 5, 13, 37]
    """
    return max(FEWEST_FAST_WAVES, int(0.4 * num_sequences ** (2 / 3)))


def _candidates(sequences: TextSums, documents: TextSums | None) -> list[tuple[Method, _Errors]]:
    """Return the errors of which the widest is taken."""
    num_sequences = len(sequences.tokens)
    fast = num_fast_waves(num_sequences)
    if documents is None or len(documents.tokens) < 2:
        if num_sequences < FEWEST_SEQUENCES:
            return []
        waves = (NUM_SLOW_WAVES, fast)
        return [("sequences", _Errors(*wave_errors(sequences, number))) for number in waves]
    by_documents = _Errors(*cluster_errors(documents))
    # three documents of one size are three, whatever the rounding
    if num_sequences < 2 or by_documents.degrees + 1 < FEWEST_DOCUMENTS - 1e-6:
        return []
    found: list[tuple[Method, _Errors]] = [("documents", by_documents)]
    if num_sequences >= FEWEST_SEQUENCES and fast >= BETTER_INFORMED * by_documents.degrees:
        found.append(("sequences", _Errors(*wave_errors(sequences, fast))))
    return found


def _counted(sums: TextSums) -> TextSums:
    """Leave out pieces without scored tokens: they say nothing, and are not to be counted."""
    if sums.nats.shape[-1:] != sums.tokens.shape:
        raise ValueError(
            f"tokens: expected one number for each of {sums.nats.shape[-1]} pieces, "
            f"got shape {tuple(sums.tokens.shape)}"
        )
    counted = sums.tokens > 0
    return TextSums(sums.nats[:, counted], sums.tokens[counted].double())


def _check_same_text(sequences: TextSums, documents: TextSums) -> None:
    ours, theirs = sequences.tokens.sum(), documents.tokens.sum()
    if not torch.isclose(ours, theirs, rtol=1e-6):
        raise ValueError(f"documents: expected the {ours:g} tokens of sequences, got {theirs:g}")


def _residuals(
    pieces: TextSums,
) -> tuple[Float64[Tensor, "quantities pieces"], Float64[Tensor, " pieces"]]:
    """Return (nats - rate * tokens) / N, which sum to zero, and the shares of the tokens."""
    tokens = pieces.tokens.double()
    shares = tokens / tokens.sum()
    rates = pieces.nats.sum(dim=1, keepdim=True) / tokens.sum()
    return pieces.nats / tokens.sum() - rates * shares, shares
