"""TUBE against the surrogate psi, as in the paper's Figure (psi_choice)."""

from matplotlib.figure import Figure

from tube_lightning.report.curves import Curves
from tube_lightning.report.figures.canvas import (
    EXACT,
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
from tube_lightning.report.wording import ppl_text, regime_title

_NAMES = {
    "pi": (r"$\psi_\pi$ (left to right)", SPLIT, (0, (1, 1))),
    "arm": (r"$\psi_{ARM}$", INK, (0, (5, 2))),
    "arm_ft": (r"$\psi_{ARM-FT}$", FAINT, (0, (3, 1, 1, 1))),
}
_WIDEST = 0.6


def draw_surrogates(curves: Curves) -> Figure:
    """Draw TUBE at psi_M against M, and at the other surrogates, all with the same p_hat."""
    half = curves.num_orderings - curves.num_orderings // 2
    figure, axes = new_figure(
        f"TUBE by surrogate $\\psi$, {regime_title(curves.regime)}: closer to the top is tighter\n"
        f"($\\hat p$ from {half} orderings; bars: 95% interval of the difference from the "
        f"{'exact value' if curves.is_exact else 'ELBO$_K$'};\nwhite arrows: below the plot)"
    )
    sizes = list(curves.tube_psi)
    values = [drawable(value.ppl) for value in curves.tube_psi.values()]
    errors = [v.margin * v.ppl for v in curves.tube_psi.values()]
    axes.errorbar(sizes, values, yerr=errors, color=UPPER, capsize=3, zorder=4)
    axes.plot(sizes, values, "o", color=UPPER, label=r"$\psi_M$", zorder=4)
    values += [drawable(value.ppl) for value in curves.surrogates.values()]
    whole = curves.elbo_k.ppl
    focus(axes, [*values, whole], curves.reference.ppl, _WIDEST)
    for name, value in curves.surrogates.items():
        title, colour, dashes = _NAMES.get(name, (rf"$\psi$ {name}", INK, "-"))
        ppl, error = drawable(value.ppl), value.margin * value.ppl
        label = named_level(axes, title, value.ppl)
        axes.axhline(ppl, color=colour, linestyle=dashes, label=label)
        axes.axhspan(ppl - error, ppl + error, color=colour, alpha=0.12, linewidth=0)
    axes.axhline(
        whole, color=GOLD, linestyle=":", linewidth=2.2, label=f"ELBO$_K$: {ppl_text(whole)}"
    )
    if curves.is_exact:
        exact = curves.reference.ppl
        axes.axhline(exact, color=EXACT, label=f"exact: {ppl_text(exact)}")
    doubling_axis(axes, sizes)
    axes.set_xlabel("M, orderings that make $\\psi_M$")
    axes.set_ylabel("perplexity, at least")
    mark_below(axes, sizes, [value.ppl for value in curves.tube_psi.values()], UPPER)
    figure.legend(loc="outside right center", frameon=False)
    return figure
