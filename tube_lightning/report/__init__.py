"""Scores on disk -> results.json, tables, figures and a verdict. Needs no network."""

from tube_lightning.report.estimates import InconsistentBoundsError
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.write import write_report

__all__ = ["Estimate", "InconsistentBoundsError", "Results", "write_report"]
