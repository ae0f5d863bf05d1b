"""The figures of a report, each a function of measured values."""

from tube_lightning.report.figures.bracket import draw_bracket
from tube_lightning.report.figures.canvas import remove_figure, save_figure
from tube_lightning.report.figures.convergence import draw_convergence
from tube_lightning.report.figures.cubo_heatmap import draw_cubo_heatmap
from tube_lightning.report.figures.surrogates import draw_surrogates

__all__ = [
    "draw_bracket",
    "draw_convergence",
    "draw_cubo_heatmap",
    "draw_surrogates",
    "remove_figure",
    "save_figure",
]
