"""Measured quantities -> estimates, verdict and comparisons, written for people and programs."""

from tube_lightning.report.estimates import InconsistentBoundsError, finite
from tube_lightning.report.paper_tables import check_paper_table
from tube_lightning.report.render import (
    canvas,
    fit_width,
    latex_table,
    markdown_table,
    markdown_text,
    short_name,
    tex_text,
)
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.shown import ShownResults
from tube_lightning.report.verdict import LEVEL, p_value
from tube_lightning.report.wording import counted, ppl_text
from tube_lightning.report.write import write_report

__all__ = [
    "LEVEL",
    "Estimate",
    "InconsistentBoundsError",
    "Results",
    "ShownResults",
    "canvas",
    "check_paper_table",
    "counted",
    "finite",
    "fit_width",
    "latex_table",
    "markdown_table",
    "markdown_text",
    "p_value",
    "ppl_text",
    "short_name",
    "tex_text",
    "write_report",
]
