"""CUBO over the number of orderings and beta, as in the paper's Figure (cubo_heatmap)."""

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tube_lightning.report.curves import BETAS, Curves
from tube_lightning.report.estimates import ROUNDING
from tube_lightning.report.figures.canvas import GOLD, drawable, new_figure
from tube_lightning.report.wording import ppl_text, regime_title


def draw_cubo_heatmap(curves: Curves) -> Figure:
    """Draw the perplexity of CUBO; gold frames are above the reference, where no bound may be."""
    numbers = sorted({number for number, _ in curves.cubo})
    reference = curves.reference.ppl
    values = np.array([[drawable(curves.cubo[n, beta].ppl) for n in numbers] for beta in BETAS])
    figure, axes = new_figure(
        f"Perplexity of CUBO$_\\beta$, {regime_title(curves.regime)}. Framed in gold: above the "
        f"{'exact value' if curves.is_exact else 'ELBO$_K$'} {ppl_text(reference)},\n"
        "so on the wrong side for a lower bound of the perplexity",
        width=max(7.2, 1.4 + 0.85 * len(numbers)),
        height=3.9,
    )
    reach = max(float(np.nanmax(np.abs(values - reference))), 1e-6 * reference)
    norm = TwoSlopeNorm(reference, reference - reach, reference + reach)
    image = axes.imshow(values, cmap="RdBu_r", norm=norm, aspect="auto")
    for row, column in np.ndindex(values.shape):
        ppl = float(values[row, column])
        dark = abs(ppl - reference) > 0.62 * reach
        colour = "white" if dark else "black"
        axes.text(column, row, ppl_text(ppl), ha="center", va="center", color=colour, fontsize=9)
        if ppl > reference * (1 + ROUNDING):
            corner = column - 0.46, row - 0.45
            axes.add_patch(Rectangle(corner, 0.92, 0.9, fill=False, edgecolor=GOLD, linewidth=3))
    axes.set_xticks(range(len(numbers)), [str(number) for number in numbers])
    axes.set_yticks(range(len(BETAS)), [f"{beta:g}" for beta in BETAS])
    axes.set_xlabel("orderings")
    axes.set_ylabel(r"$\beta$", rotation=0, labelpad=10)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label="perplexity")
    return figure
