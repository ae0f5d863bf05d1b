"""Estimators of log p(x) = log E[p(x | order)], as pure functions of ``scores[..., orderings]``.

Scores are log p(x | order) in nats, one for each iid ordering. They may be of any floating dtype;
every value comes back in float64. NaN and +inf are refused, -inf is a probability of zero. Each
function carries ``side`` ("lower" or "upper") and ``bound_preserving``.

>>> tube_loo.side, tube_loo.bound_preserving, cubo.side, cubo.bound_preserving
('upper', True, 'upper', False)
"""

from tube_lightning.bounds.chi import cubo
from tube_lightning.bounds.evidence import elbo, elbo_k
from tube_lightning.bounds.tangent import (
    TangentTerms,
    tube,
    tube_kfold,
    tube_loo,
    tube_loo_terms,
    tube_split,
    tube_split_terms,
    tube_terms,
)
from tube_lightning.bounds.thermodynamic import tvo_upper
from tube_lightning.bounds.validity import Estimator, Side
from tube_lightning.bounds.variational_gap import isvgb

__all__ = [
    "Estimator",
    "Side",
    "TangentTerms",
    "cubo",
    "elbo",
    "elbo_k",
    "isvgb",
    "tube",
    "tube_kfold",
    "tube_loo",
    "tube_loo_terms",
    "tube_split",
    "tube_split_terms",
    "tube_terms",
    "tvo_upper",
]
