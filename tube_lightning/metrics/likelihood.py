"""The log-likelihood of a corpus, or a bound on it, summed over batches and ranks."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64, Int, Int64, Shaped
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from tube_lightning.bounds import ESTIMATORS, EstimatorSettings, terms_of
from tube_lightning.metrics.errors import RateError
from tube_lightning.metrics.quantities import Quantity
from tube_lightning.metrics.sums import CorpusSums, join, pack


class Measured(NamedTuple):
    """Nats per token over a corpus, with their error."""

    nats_per_token: float
    error: RateError
    num_tokens: int

    @property
    def standard_error(self) -> float:
        """The standard error of the nats, or NaN."""
        return self.error.standard_error

    @property
    def margin(self) -> float:
        """Half the width of the 95% interval of the nats, or NaN."""
        return self.error.margin

    @property
    def ppl(self) -> float:
        """exp(-nats), or inf."""
        return perplexity(self.nats_per_token)


def perplexity(nats_per_token: float) -> float:
    """Return exp(-nats): inf where that is too large for a float, 0 for nats of +inf."""
    return math.inf if nats_per_token < -709 else math.exp(-nats_per_token)


def _logsumexp_of_ranks(states: Float64[Tensor, " ranks"]) -> Float64[Tensor, ""]:
    return torch.logsumexp(states, dim=0)


class LikelihoodBound(Metric):
    """Nats per token of a corpus: a bound on its log-likelihood, from the scores of its blocks.

    ``bound`` is the name of an estimator ("tube", "elbo_k", ...; see ``bounds.ESTIMATORS``) or any
    function of scores, such as ``functools.partial(cubo, beta=3.0)``. ``kwargs`` are those of
    ``torchmetrics.Metric``.

    Sums are float64 on every device and under every precision. The ratios p_hat / psi of a tangent
    bound stay in log space from block to corpus; they are never clipped.

    >>> metric = LikelihoodBound("elbo_k")
    >>> scores = torch.tensor([[-3.0, -3.5], [-2.0, -2.5]])  # log p(block | order): 2 x 2 orders
    >>> metric.update(scores, num_tokens=torch.tensor([4, 4]))
    >>> round(metric.compute().item(), 4)
    -0.6798
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
    unlike: Float[Tensor, ""]

    def __init__(
        self,
        bound: str | Callable[..., Any],
        *,
        name: str | None = None,
        **kwargs: Any,  # noqa: ANN401 (torchmetrics')
    ) -> None:
        super().__init__(**kwargs)
        self.bound = _find_bound(bound)
        self.name = name or (bound if isinstance(bound, str) else "bound")
        for state, kind in (
            ("sum_nats", torch.float64),
            ("sum_squares", torch.float64),  # of the sequences' nats
            ("sum_products", torch.float64),  # of their nats and tokens
            ("num_ratios", torch.int64),
            ("num_tokens", torch.int64),
            ("num_sequences", torch.int64),
            ("sum_token_squares", torch.int64),
        ):
            self.add_state(state, torch.zeros((), dtype=kind), dist_reduce_fx="sum")
        nothing = torch.tensor(-torch.inf, dtype=torch.float64)
        self.add_state("log_sum_ratio", nothing, dist_reduce_fx=_logsumexp_of_ranks)
        # equal to no other's, itself included: a collection merges metrics whose states are equal
        # after the first batch, on which a lower and an upper bound may tie
        self.add_state("unlike", torch.tensor(torch.nan), dist_reduce_fx="max")

    def update(self, scores: Any, num_tokens: Tensor) -> None:  # noqa: ANN401
        """Count some sequences: scores [batch, blocks, orderings], or [batch, orderings].

        ``num_tokens`` counts the scored tokens of each block; blocks without any count nothing. (A
        bound that is a function of something else gets that in place of the scores.)
        """
        if num_tokens.is_floating_point():
            raise ValueError(f"num_tokens: expected whole numbers, got {num_tokens.dtype}")
        values = terms_of(self.bound)(scores)
        linear, log_ratio = (values, None) if isinstance(values, Tensor) else values.averages()
        nats = linear if log_ratio is None else linear + torch.expm1(log_ratio)
        _check_tokens(num_tokens, nats)
        counted = num_tokens > 0
        per_sequence = _by_sequence(torch.where(counted, nats, 0.0)).sum(dim=1)
        if per_sequence.isnan().any():
            row = int(per_sequence.isnan().nonzero()[0])
            raise ValueError(f"{self.name}: expected a number, got nan in row {row}")
        if log_ratio is not None:
            log_sum = torch.logsumexp(log_ratio[counted], dim=0)
            self.log_sum_ratio = torch.logaddexp(self.log_sum_ratio, log_sum)
            self._add(num_ratios=counted.sum())
        tokens = _by_sequence(num_tokens.long()).sum(dim=1)
        self._add(
            sum_nats=linear[counted].sum(),
            sum_squares=per_sequence.square().sum(),
            sum_products=(per_sequence * tokens).sum(),
            num_tokens=tokens.sum(),
            num_sequences=len(tokens),
            sum_token_squares=tokens.square().sum(),
        )

    def _add(self, **amounts: Tensor | int) -> None:
        """Replace states by their sums; in place, processes that were spawned would share them."""
        for state, amount in amounts.items():
            setattr(self, state, getattr(self, state) + amount)

    def compute(self) -> Float64[Tensor, ""]:
        """Return the nats per token; exp of minus that is the perplexity."""
        return self.sums().rate()

    def measured(self) -> Measured:
        """Return the nats per token with their standard error, over all ranks: a collective.

        The error is that of a ratio of sums (the delta method), *as if sequences were independent*:
        too small where they are windows of the same documents. NaN for a single sequence.
        """
        with self.sync_context(should_sync=self.sync_on_compute):
            return _measure(self.sums())

    def sums(self) -> CorpusSums:
        """Return what this process has summed."""
        return CorpusSums(*(getattr(self, name) for name in CorpusSums._fields))

    def plot(self, val: Any = None, ax: Any = None) -> Any:  # noqa: ANN401 (torchmetrics' signature)
        """Plot the value, or values of several calls: as torchmetrics' own metrics do."""
        return self._plot(val, ax)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ""
    ) -> nn.Module:
        """Follow the module to its device, never to its precision."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)


def _check_tokens(num_tokens: Int[Tensor, "..."], nats: Float64[Tensor, "..."]) -> None:
    """Refuse numbers of tokens that are not those of the blocks."""
    if nats.ndim < 1:
        raise ValueError("scores: expected [batch, blocks, orderings] or [batch, orderings]")
    if nats.shape != num_tokens.shape:
        raise ValueError(
            f"num_tokens: expected one number for each block, {tuple(nats.shape)}, "
            f"got shape {tuple(num_tokens.shape)}"
        )
    if (num_tokens < 0).any():
        raise ValueError(f"num_tokens: expected 0 or more, got {int(num_tokens.min())}")


def _by_sequence(values: Shaped[Tensor, "batch ..."]) -> Shaped[Tensor, "batch numbers"]:
    return values.flatten(1) if values.ndim > 1 else values[:, None]


def _find_bound(bound: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(bound):
        return bound
    if bound not in ESTIMATORS:
        raise ValueError(f"bound: expected one of {', '.join(ESTIMATORS)}, got {bound!r}")
    return ESTIMATORS[bound].with_settings(EstimatorSettings())


def corpus_metrics(quantities: Iterable[Quantity]) -> MetricCollection:
    """Make one metric a quantity, all updated by (view of a regime, number of tokens).

    No compute groups: no two bounds have the same states, so looking for
    equal ones is in vain.
    """
    metrics: dict[str, Metric | MetricCollection] = {
        quantity.name: LikelihoodBound(
            quantity.read,
            name=quantity.name,
            compute_with_cache=False,  # a rank out of batches joins every collective
        )
        for quantity in quantities
    }
    return MetricCollection(metrics, compute_groups=False)


def packed_sums(metrics: MetricCollection) -> Float64[Tensor, "sums metrics"]:
    """Return what the metrics of a corpus have summed in this process, for others to add."""
    sums = [metric.sums() for metric in _bounds(metrics).values()]
    return pack(CorpusSums(*(torch.stack(values) for values in zip(*sums, strict=True))))


def measured(
    metrics: MetricCollection, others: Sequence[Float64[Tensor, "sums metrics"]] = ()
) -> dict[str, Measured]:
    """Read the values off the metrics of a corpus, with the ``packed_sums`` of other processes.

    No process waits for another: these are whatever others have told.
    """
    together = join(torch.stack([packed_sums(metrics), *others]))
    each = (CorpusSums(*values) for values in zip(*(v.unbind() for v in together), strict=True))
    return {name: _measure(sums) for name, sums in zip(_bounds(metrics), each, strict=True)}


def _measure(sums: CorpusSums) -> Measured:
    number = int(sums.num_sequences)
    error = RateError(sums.standard_error().item(), number - 1, "independent", number)
    return Measured(sums.rate().item(), error, int(sums.num_tokens))


def _bounds(metrics: MetricCollection) -> dict[str, LikelihoodBound]:
    found = {}
    for name, metric in metrics.items():
        if not isinstance(metric, LikelihoodBound):
            raise TypeError(f"{name}: expected a LikelihoodBound, got {type(metric).__name__}")
        found[str(name)] = metric
    return found
