"""Token sequences -> revealed sets -> conditional table -> scores on disk -> running bounds."""

from tube_lightning.evaluator.batches import (
    EvaluationBatches,
    EvaluationData,
    TokenBatch,
    sequence_roles,
)
from tube_lightning.evaluator.block_scores import score_batch
from tube_lightning.evaluator.live import LiveValues, curve_name
from tube_lightning.evaluator.module import LikelihoodEvaluation
from tube_lightning.evaluator.plan import Plan

__all__ = [
    "EvaluationBatches",
    "EvaluationData",
    "LikelihoodEvaluation",
    "LiveValues",
    "Plan",
    "TokenBatch",
    "curve_name",
    "score_batch",
    "sequence_roles",
]
