"""Token blocks -> revealed sets -> conditional table -> scores on disk -> running bounds."""

from tube_lightning.evaluator.batches import EvaluationBatches, EvaluationData, TokenBatch
from tube_lightning.evaluator.block_scores import score_batch
from tube_lightning.evaluator.live import LiveValues, errors_in_a_line, quiet_lightning
from tube_lightning.evaluator.module import LikelihoodEvaluation
from tube_lightning.evaluator.plan import Plan, Protocol
from tube_lightning.evaluator.run import run_evaluation, score_and_report

__all__ = [
    "EvaluationBatches",
    "EvaluationData",
    "LikelihoodEvaluation",
    "LiveValues",
    "Plan",
    "Protocol",
    "TokenBatch",
    "errors_in_a_line",
    "quiet_lightning",
    "run_evaluation",
    "score_and_report",
    "score_batch",
]
