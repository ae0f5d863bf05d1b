"""Checkpoints and text in, results out: the stages above in one call."""

from tube_lightning.pipeline.console import errors_in_a_line, quiet_lightning
from tube_lightning.pipeline.naming import default_directory
from tube_lightning.pipeline.notebook import evaluate
from tube_lightning.pipeline.run import run_evaluation

__all__ = [
    "default_directory",
    "errors_in_a_line",
    "evaluate",
    "quiet_lightning",
    "run_evaluation",
]
