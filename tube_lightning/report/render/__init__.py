"""What people look at: the rows of the table on the screen, in Markdown and LaTeX, and figures."""

from tube_lightning.report.render.figures import canvas, write_figures
from tube_lightning.report.render.latex import latex, latex_table, short_name, tex_text
from tube_lightning.report.render.markdown import markdown, markdown_table, markdown_text
from tube_lightning.report.render.screen import fit_width, show_results

__all__ = [
    "canvas",
    "fit_width",
    "latex",
    "latex_table",
    "markdown",
    "markdown_table",
    "markdown_text",
    "short_name",
    "show_results",
    "tex_text",
    "write_figures",
]
