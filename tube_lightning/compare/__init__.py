"""Finished runs side by side on the text that they share. Needs no network and no text."""

from tube_lightning.compare.comparison import compare_runs
from tube_lightning.compare.schema import RunComparison
from tube_lightning.compare.write import write_comparison

__all__ = ["RunComparison", "compare_runs", "write_comparison"]
