"""torchmetrics of the corpus: state and reduction only. The formulas are in ``bounds``."""

from tube_lightning.metrics.likelihood import (
    LikelihoodBound,
    Measured,
    corpus_metrics,
    measured,
    perplexity,
)
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
    "Quantity",
    "arm_quantities",
    "corpus_metrics",
    "exact_quantities",
    "measured",
    "perplexity",
    "sampled_quantities",
    "surrogate_tubes",
]
