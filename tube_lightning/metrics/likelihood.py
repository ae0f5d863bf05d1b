"""The log-likelihood of a corpus, or a bound on it, summed over batches and ranks."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from tube_lightning.bounds import TangentTerms
from tube_lightning.metrics.quantities import Quantity
from tube_lightning.score_files import RegimeScores

_REDUCED_BY_LOGSUMEXP = "log_sum_ratio"


def _logsumexp_of_ranks(states: Float64[Tensor, " ranks"]) -> Float64[Tensor, ""]:
    return torch.logsumexp(states, dim=0)


class CorpusLikelihood(Metric):
    """One quantity of a corpus, per token, with its standard error over sequences.

    Sums are float64 on every device and under every precision. The ratios p_hat / psi of a tangent
    bound stay in log space from block to corpus; they are never clipped.
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False
    sum_nats: Float64[Tensor, ""]
    log_sum_ratio: Float64[Tensor, ""]
    num_ratios: Int64[Tensor, ""]
    num_tokens: Int64[Tensor, ""]
    num_sequences: Int64[Tensor, ""]
    sum_squares: Float64[Tensor, ""]
    sum_products: Float64[Tensor, ""]
    sum_token_squares: Int64[Tensor, ""]

    def __init__(self, quantity: Quantity, *, over_ranks: bool = True) -> None:
        # no cache: a rank out of batches joins every collective
        super().__init__(compute_with_cache=False, sync_on_compute=over_ranks)
        self.quantity = quantity
        for name, kind in (
            ("sum_nats", torch.float64),
            ("sum_squares", torch.float64),  # of the sequences' nats
            ("sum_products", torch.float64),  # of their nats and tokens
            ("num_ratios", torch.int64),
            ("num_tokens", torch.int64),
            ("num_sequences", torch.int64),
            ("sum_token_squares", torch.int64),
        ):
            self.add_state(name, torch.zeros((), dtype=kind), dist_reduce_fx="sum")
        nothing = torch.tensor(-torch.inf, dtype=torch.float64)
        self.add_state(_REDUCED_BY_LOGSUMEXP, nothing, dist_reduce_fx=_logsumexp_of_ranks)

    def update(self, regime: RegimeScores, num_tokens: Int64[Tensor, "batch blocks"]) -> None:
        """Count some sequences. Blocks without a scored token count nothing."""
        terms = self.quantity.read(regime)
        linear, log_ratio = terms if isinstance(terms, TangentTerms) else (terms, None)
        nats = linear if log_ratio is None else linear + torch.expm1(log_ratio)
        counted = num_tokens > 0
        per_sequence = torch.where(counted, nats, 0.0).sum(dim=1)
        if per_sequence.isnan().any():
            row = int(per_sequence.isnan().nonzero()[0])
            raise ValueError(f"{self.quantity.name}: expected a number, got nan in row {row}")
        self.sum_nats += linear[counted].sum()
        if log_ratio is not None:
            log_sum = torch.logsumexp(log_ratio[counted], dim=0)
            self.log_sum_ratio = torch.logaddexp(self.log_sum_ratio, log_sum)
            self.num_ratios += counted.sum()
        tokens = num_tokens.sum(dim=1)
        self.num_tokens += tokens.sum()
        self.num_sequences += len(tokens)
        self.sum_squares += per_sequence.square().sum()
        self.sum_products += (per_sequence * tokens).sum()
        self.sum_token_squares += tokens.square().sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the nats per token, their standard error, and how many tokens and sequences.

        The error is that of a ratio of sums (the delta method): NaN for a single sequence.
        """
        total = self.sum_nats
        if self.num_ratios > 0:
            total = total + (self.log_sum_ratio.exp() - self.num_ratios)
        rate = total / self.num_tokens
        squared_errors = (
            self.sum_squares - 2 * rate * self.sum_products + rate**2 * self.sum_token_squares
        )
        spread = self.num_sequences / (self.num_sequences - 1).double()
        error = (spread * squared_errors.clamp(min=0)).sqrt() / self.num_tokens
        alone = self.num_sequences < 2
        return {
            "nats_per_token": rate,
            "standard_error": torch.where(alone, torch.nan, error),
            "num_tokens": self.num_tokens,
            "num_sequences": self.num_sequences,
        }

    def _apply(
        self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ""
    ) -> nn.Module:
        """Follow the module to its device, never to its precision."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)


def corpus_metrics(quantities: Iterable[Quantity], *, over_ranks: bool = True) -> MetricCollection:
    """Make one metric a quantity, all updated by (regime scores, number of tokens).

    Values are over all ranks; ``over_ranks=False`` asks no other, for one that saw all there is.
    No compute groups: they would merge a lower and an upper bound that tie on the first batch.
    """
    metrics: dict[str, Metric | MetricCollection] = {
        quantity.name: CorpusLikelihood(quantity, over_ranks=over_ranks) for quantity in quantities
    }
    return MetricCollection(metrics, compute_groups=False)


def perplexity(nats_per_token: float) -> float:
    """Return exp(-nats): inf where that is too large for a float, 0 for nats of +inf."""
    return math.inf if nats_per_token < -709 else math.exp(-nats_per_token)
