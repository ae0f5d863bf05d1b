"""torchmetrics of the corpus: state and reduction only. The formulas are in ``bounds``."""

from tube_lightning.metrics.likelihood import CorpusLikelihood, corpus_metrics, perplexity
from tube_lightning.metrics.quantities import (
    EstimatorSettings,
    Quantity,
    arm_likelihood,
    exact_quantities,
    sampled_quantities,
    surrogate_tube,
)

__all__ = [
    "CorpusLikelihood",
    "EstimatorSettings",
    "Quantity",
    "arm_likelihood",
    "corpus_metrics",
    "exact_quantities",
    "perplexity",
    "sampled_quantities",
    "surrogate_tube",
]
