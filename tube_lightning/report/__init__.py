"""Measured quantities -> estimates, verdict and comparisons, written for people and programs."""

from tube_lightning.report.estimates import InconsistentBoundsError
from tube_lightning.report.paper_tables import check_paper_table
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.write import write_report

__all__ = [
    "Estimate",
    "InconsistentBoundsError",
    "Results",
    "check_paper_table",
    "write_report",
]
