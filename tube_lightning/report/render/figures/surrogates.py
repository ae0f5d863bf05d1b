"""TUBE against the surrogate psi, as in the paper's Figure (psi_choice)."""

from collections.abc import Mapping
from functools import partial

from matplotlib.figure import Figure

from tube_lightning.bounds import TangentTerms, elbo_k, tube
from tube_lightning.metrics import Measured, Quantity
from tube_lightning.report.render.figures.canvas import (
    EXACT_COLOUR,
    FAINT,
    GOLD,
    INK,
    SPLIT,
    UPPER,
    doubling_axis,
    drawable,
    focus,
    mark_below,
    named_level,
    new_figure,
)
from tube_lightning.report.render.figures.levels import Levels, doublings
from tube_lightning.report.wording import ppl_text
from tube_lightning.scores import ARM, ARM_FT, LEFT_TO_RIGHT, RegimeView

_NAMES = {
    LEFT_TO_RIGHT: (r"$\psi_\pi$ (left to right)", SPLIT, (0, (1, 1))),
    ARM: (r"$\psi_{ARM}$", INK, (0, (5, 2))),
    ARM_FT: (r"$\psi_{ARM-FT}$", FAINT, (0, (3, 1, 1, 1))),
}
_WIDEST = 0.6


def _read_at_psi_m(half: int, m: int, view: RegimeView) -> TangentTerms:
    scores = view.regime.scores
    return tube.terms(scores[..., half:], elbo_k(scores[..., :m]))


def _read_at(half: int, surrogate: str, view: RegimeView) -> TangentTerms:
    return tube.terms(view.regime.scores[..., half:], view.surrogates[surrogate])


class Surrogates:
    """TUBE at psi_M against M, and at the other surrogates, all with the same p_hat.

    psi_M is made of the first M orderings of the first half, p_hat of the second half.
    """

    name = "surrogates"

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        half = levels.num_orderings // 2
        self.sizes = doublings(1, half)
        self.at_psi_m = [Quantity("psi_m", partial(_read_at_psi_m, half, m)) for m in self.sizes]
        self.others = {
            name: Quantity(name, partial(_read_at, half, name)) for name in levels.surrogates
        }

    @property
    def quantities(self) -> list[Quantity]:
        """List what is to be measured."""
        return [*self.levels.quantities, *self.at_psi_m, *self.others.values()]

    def draw(self, values: Mapping[Quantity, Measured]) -> Figure:
        """Draw the curve of psi_M, and a level for each of the others."""
        levels, sizes = self.levels, self.sizes
        num_p_hat = levels.num_orderings - levels.num_orderings // 2
        figure, axes = new_figure(
            f"TUBE by surrogate $\\psi$, {levels.regime.title}: closer to the top is tighter\n"
            f"($\\hat p$ from {num_p_hat} orderings; bars: 95% interval of the difference from the "
            f"{levels.reference_title};\nwhite arrows: below the plot)"
        )
        curve = [values[quantity] for quantity in self.at_psi_m]
        heights = [drawable(value.ppl) for value in curve]
        errors = [value.margin * value.ppl for value in curve]
        axes.errorbar(sizes, heights, yerr=errors, color=UPPER, capsize=3, zorder=4)
        axes.plot(sizes, heights, "o", color=UPPER, label=r"$\psi_M$", zorder=4)
        heights += [drawable(values[quantity].ppl) for quantity in self.others.values()]
        whole = values[levels.elbo_k].ppl
        focus(axes, [*heights, whole], values[levels.reference].ppl, _WIDEST)
        for name, quantity in self.others.items():
            value = values[quantity]
            title, colour, dashes = _NAMES.get(name, (rf"$\psi$ {name}", INK, "-"))
            ppl, error = drawable(value.ppl), value.margin * value.ppl
            label = named_level(axes, title, value.ppl)
            axes.axhline(ppl, color=colour, linestyle=dashes, label=label)
            axes.axhspan(ppl - error, ppl + error, color=colour, alpha=0.12, linewidth=0)
        axes.axhline(
            whole, color=GOLD, linestyle=":", linewidth=2.2, label=f"ELBO$_K$: {ppl_text(whole)}"
        )
        if levels.exact is not None:
            exact = values[levels.exact].ppl
            axes.axhline(exact, color=EXACT_COLOUR, label=f"exact: {ppl_text(exact)}")
        doubling_axis(axes, sizes)
        axes.set_xlabel("M, orderings that make $\\psi_M$")
        axes.set_ylabel("perplexity, at least")
        mark_below(axes, sizes, [value.ppl for value in curve], UPPER)
        figure.legend(loc="outside right center", frameon=False)
        return figure
