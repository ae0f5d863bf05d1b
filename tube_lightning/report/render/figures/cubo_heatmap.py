"""CUBO over the number of orderings and beta, as in the paper's Figure (cubo_heatmap)."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from jaxtyping import Float64
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from tube_lightning.bounds import cubo
from tube_lightning.metrics import Measured, Quantity
from tube_lightning.report.estimates import ROUNDING
from tube_lightning.report.render.figures.canvas import GOLD, drawable, new_figure
from tube_lightning.report.render.figures.levels import Levels, doublings
from tube_lightning.report.wording import ppl_text
from tube_lightning.scores import RegimeView

BETAS = (1.0, 1.5, 2.0, 3.0, 5.0)
"""Of the paper's heatmap."""


def _read_cubo(number: int, beta: float, view: RegimeView) -> Float64[Tensor, "batch blocks"]:
    return cubo(view.regime.scores[..., :number], beta)


class CuboHeatmap:
    """The perplexity of CUBO; gold frames are above the reference, where no bound may be."""

    name = "cubo_heatmap"

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.numbers = doublings(1, levels.num_orderings)
        self.cells = {
            (number, beta): Quantity("cubo", partial(_read_cubo, number, beta))
            for number in self.numbers
            for beta in BETAS
        }

    @property
    def quantities(self) -> list[Quantity]:
        """List what is to be measured."""
        return [*self.levels.quantities, *self.cells.values()]

    def draw(self, values: Mapping[Quantity, Measured]) -> Figure:
        """Draw a cell for each number of orderings and beta."""
        numbers, reference = self.numbers, values[self.levels.reference].ppl
        ppls = np.array(
            [[drawable(values[self.cells[n, beta]].ppl) for n in numbers] for beta in BETAS]
        )
        figure, axes = new_figure(
            f"Perplexity of CUBO$_\\beta$, {self.levels.regime.title}. Framed in gold: above the "
            f"{self.levels.reference_title} {ppl_text(reference)},\n"
            "so on the wrong side for a lower bound of the perplexity",
            width=max(7.2, 1.4 + 0.85 * len(numbers)),
            height=3.9,
        )
        reach = max(float(np.nanmax(np.abs(ppls - reference))), 1e-6 * reference)
        norm = TwoSlopeNorm(reference, reference - reach, reference + reach)
        image = axes.imshow(ppls, cmap="RdBu_r", norm=norm, aspect="auto")
        for row, column in np.ndindex(ppls.shape):
            ppl = float(ppls[row, column])
            dark = abs(ppl - reference) > 0.62 * reach
            colour = "white" if dark else "black"
            text = ppl_text(ppl)
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)
            if ppl > reference * (1 + ROUNDING):
                corner = column - 0.46, row - 0.45
                frame = Rectangle(corner, 0.92, 0.9, fill=False, edgecolor=GOLD, linewidth=3)
                axes.add_patch(frame)
        axes.set_xticks(range(len(numbers)), [str(number) for number in numbers])
        axes.set_yticks(range(len(BETAS)), [f"{beta:g}" for beta in BETAS])
        axes.set_xlabel("orderings")
        axes.set_ylabel(r"$\beta$", rotation=0, labelpad=10)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label="perplexity")
        return figure
