"""Scores on disk -> results.json, tables, figures and a verdict. Needs no network."""

from tube_lightning.report.estimates import InconsistentBoundsError
from tube_lightning.report.paper_tables import check_paper_table
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.write import FIGURES_FOLDER, write_report

__all__ = [
    "FIGURES_FOLDER",
    "Estimate",
    "InconsistentBoundsError",
    "Results",
    "check_paper_table",
    "write_report",
]
