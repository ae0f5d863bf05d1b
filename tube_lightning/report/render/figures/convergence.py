"""How the bracket closes with the number of orderings."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from tube_lightning.bounds import elbo_k, tube_loo, tube_split
from tube_lightning.metrics import Measured, Quantity
from tube_lightning.report.render.figures.canvas import (
    ARM_STYLE,
    EXACT_COLOUR,
    LOWER,
    SPLIT,
    UPPER,
    doubling_axis,
    drawable,
    focus,
    mark_below,
    named_level,
    new_figure,
)
from tube_lightning.report.render.figures.levels import Levels, doublings, of_first
from tube_lightning.report.wording import ppl_text

_WIDEST = 0.25
"""TUBE with two orderings may be far off: what is further away than this is cut."""


class Convergence:
    """ELBO_m and the two TUBE bounds of the first m orderings, against m."""

    name = "convergence"

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.sizes = doublings(2, levels.num_orderings)
        self.elbo, self.tube_loo, self.tube_split = (
            [of_first(m, bound) for m in self.sizes] for bound in (elbo_k, tube_loo, tube_split)
        )

    @property
    def quantities(self) -> list[Quantity]:
        """List what is to be measured."""
        return [*self.levels.quantities, *self.elbo, *self.tube_loo, *self.tube_split]

    def draw(self, values: Mapping[Quantity, Measured]) -> Figure:
        """Draw the curves, with the exact value and the ARM where there are."""
        levels, sizes = self.levels, self.sizes
        figure, axes = new_figure(
            f"How the bracket closes with more orderings, {levels.regime.title}\n"
            "(white arrows: below the plot)"
        )
        lines = {
            "ELBO$_m$ (at most)": (self.elbo, LOWER, "s", "-"),
            "TUBE, leave-one-out (at least)": (self.tube_loo, UPPER, "o", "-"),
            "TUBE, split (at least)": (self.tube_split, SPLIT, "v", "--"),
        }
        shown = []
        for title, (series, colour, shape, dashes) in lines.items():
            heights = [drawable(values[quantity].ppl) for quantity in series]
            axes.plot(sizes, heights, color=colour, marker=shape, linestyle=dashes, label=title)
            shown += heights
        low, high = ([values[q].ppl for q in series] for series in (self.tube_loo, self.elbo))
        axes.fill_between(sizes, low, high, color="#bbbbbb", alpha=0.3, linewidth=0)
        if levels.exact is not None:
            exact = values[levels.exact].ppl
            axes.axhline(
                exact, color=EXACT_COLOUR, linewidth=1.5, label=f"exact: {ppl_text(exact)}"
            )
        arm = None if levels.arm is None else values[levels.arm].ppl
        doubling_axis(axes, sizes)
        axes.set_xlabel("m, orderings")
        axes.set_ylabel("perplexity")
        focus(axes, shown if arm is None else [*shown, arm], values[levels.reference].ppl, _WIDEST)
        if arm is not None:
            axes.axhline(drawable(arm), label=named_level(axes, "ARM", arm), **ARM_STYLE)
        for place, (series, colour, _, _) in enumerate(lines.values()):
            heights = [values[quantity].ppl for quantity in series]
            mark_below(axes, sizes, heights, colour, height=0.02 + 0.04 * place)
        axes.legend(frameon=False, fontsize=9)
        return figure
