"""torchmetrics of the corpus: state and reduction only. The formulas are in ``bounds``."""

from tube_lightning.metrics.errors import Method, RateError, TextSums, rate_errors
from tube_lightning.metrics.intervals import t95
from tube_lightning.metrics.likelihood import (
    LikelihoodBound,
    Measured,
    corpus_metrics,
    measured,
    packed_sums,
    perplexity,
)
from tube_lightning.metrics.paired_rates import difference_of_rates
from tube_lightning.metrics.quantities import (
    ELBO_K,
    EXACT,
    EXACT_ELBO,
    Quantity,
    arm_quantities,
    exact_quantities,
    sampled_quantities,
    surrogate_tubes,
)

__all__ = [
    "ELBO_K",
    "EXACT",
    "EXACT_ELBO",
    "LikelihoodBound",
    "Measured",
    "Method",
    "Quantity",
    "RateError",
    "TextSums",
    "arm_quantities",
    "corpus_metrics",
    "difference_of_rates",
    "exact_quantities",
    "measured",
    "packed_sums",
    "perplexity",
    "rate_errors",
    "sampled_quantities",
    "surrogate_tubes",
    "t95",
]
