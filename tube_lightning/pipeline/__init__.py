"""Checkpoints and text in, results out: the stages above in one call."""

from tube_lightning.pipeline.console import errors_in_a_line, quiet_lightning
from tube_lightning.pipeline.notebook import evaluate
from tube_lightning.pipeline.run import run_evaluation

__all__ = ["errors_in_a_line", "evaluate", "quiet_lightning", "run_evaluation"]
