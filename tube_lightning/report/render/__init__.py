"""What people look at: the rows of the table on the screen, in Markdown and LaTeX, and figures."""

from tube_lightning.report.render.figures import write_figures
from tube_lightning.report.render.latex import latex
from tube_lightning.report.render.markdown import markdown
from tube_lightning.report.render.screen import show_results

__all__ = ["latex", "markdown", "show_results", "write_figures"]
