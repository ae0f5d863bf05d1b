"""How the bracket closes with the number of orderings."""

from matplotlib.figure import Figure

from tube_lightning.report.curves import Curves
from tube_lightning.report.figures.canvas import (
    ARM_STYLE,
    EXACT,
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
from tube_lightning.report.wording import ppl_text, regime_title

_WIDEST = 0.25
"""TUBE with two orderings may be far off: what is further away than this is cut."""


def draw_convergence(curves: Curves) -> Figure:
    """Draw ELBO_m and the two TUBE bounds of the first m orderings, against m."""
    figure, axes = new_figure(
        f"How the bracket closes with more orderings, {regime_title(curves.regime)}\n"
        "(white arrows: below the plot)"
    )
    sizes = list(curves.elbo)
    lines = {
        "ELBO$_m$ (at most)": (curves.elbo, LOWER, "s", "-"),
        "TUBE, leave-one-out (at least)": (curves.tube_loo, UPPER, "o", "-"),
        "TUBE, split (at least)": (curves.tube_split, SPLIT, "v", "--"),
    }
    shown = []
    for title, (series, colour, shape, dashes) in lines.items():
        values = [drawable(value.ppl) for value in series.values()]
        axes.plot(sizes, values, color=colour, marker=shape, linestyle=dashes, label=title)
        shown += values
    low, high = ([v.ppl for v in series.values()] for series in (curves.tube_loo, curves.elbo))
    axes.fill_between(sizes, low, high, color="#bbbbbb", alpha=0.3, linewidth=0)
    if curves.is_exact:
        exact = curves.reference.ppl
        axes.axhline(exact, color=EXACT, linewidth=1.5, label=f"exact: {ppl_text(exact)}")
    if curves.arm is not None:
        shown.append(curves.arm.ppl)
    doubling_axis(axes, sizes)
    axes.set_xlabel("m, orderings")
    axes.set_ylabel("perplexity")
    focus(axes, shown, curves.reference.ppl, _WIDEST)
    if curves.arm is not None:
        label = named_level(axes, "ARM", curves.arm.ppl)
        axes.axhline(drawable(curves.arm.ppl), label=label, **ARM_STYLE)
    for place, (series, colour, _, _) in enumerate(lines.values()):
        values = [value.ppl for value in series.values()]
        mark_below(axes, sizes, values, colour, height=0.02 + 0.04 * place)
    axes.legend(frameon=False, fontsize=9)
    return figure
