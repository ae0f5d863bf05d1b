"""Estimators of log p(x) = log E[p(x | order)], as pure functions of ``scores[..., orderings]``.

Scores are log p(x | order) in nats, one for each iid ordering. They may be of any floating dtype;
every value comes back in float64. NaN and +inf are refused, -inf is a probability of zero. Each
function carries ``side`` ("lower" or "upper") and ``bound_preserving``; ``ESTIMATORS`` is the table
of those that are reported.

>>> tube_loo.side, tube_loo.bound_preserving, cubo.side, cubo.bound_preserving
('upper', True, 'upper', False)
"""

from tube_lightning.bounds.cubo import cubo
from tube_lightning.bounds.elbo import elbo, elbo_k
from tube_lightning.bounds.estimators import (
    ESTIMATORS,
    Estimator,
    EstimatorSettings,
    Setting,
    headline_bound,
    list_settings,
    register_estimator,
)
from tube_lightning.bounds.isvgb import isvgb
from tube_lightning.bounds.tube import TangentTerms, tube, tube_kfold, tube_loo, tube_split
from tube_lightning.bounds.tvo import tvo_of_resamples, tvo_upper
from tube_lightning.bounds.validity import Bound, Side, Terms, guarantee, terms_of

__all__ = [
    "ESTIMATORS",
    "Bound",
    "Estimator",
    "EstimatorSettings",
    "Setting",
    "Side",
    "TangentTerms",
    "Terms",
    "cubo",
    "elbo",
    "elbo_k",
    "guarantee",
    "headline_bound",
    "isvgb",
    "list_settings",
    "register_estimator",
    "terms_of",
    "tube",
    "tube_kfold",
    "tube_loo",
    "tube_split",
    "tvo_of_resamples",
    "tvo_upper",
]
