"""The bracket of each regime, with the ARM beside it."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tube_lightning.report.figures.canvas import (
    ARM_STYLE,
    EXACT,
    FAINT,
    INK,
    LOWER,
    UPPER,
)
from tube_lightning.report.rows import tube_name
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.wording import ppl_text, regime_title

_BIASED = {"cubo": ("o", "CUBO"), "tvo": ("s", "TVO"), "isvgb": ("^", "IS-VG-B")}
_NEAR = 3.0
"""The ARM is drawn in a regime's panel if that makes it at most so many times wider."""


def draw_bracket(results: Results) -> Figure:
    """Draw a panel for each regime, on its own scale: that of one step would hide the others."""
    regimes = results["regimes"]
    figure = Figure(figsize=(7.6, 1.5 + 0.82 * len(regimes)), layout="constrained")
    panels = figure.subplots(len(regimes), 1, squeeze=False)[:, 0]
    for axes, (name, estimates) in zip(panels, regimes.items(), strict=True):
        _draw_panel(axes, estimates, tube_name(results), results["arm"])
        title = f"{regime_title(name)}\n{_range(estimates, tube_name(results))}"
        axes.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9.5)
    panels[-1].set_xlabel("perplexity (each regime on its own scale)")
    figure.suptitle("Where the perplexity is: TUBE below, ELBO$_K$ above", fontsize=11)
    figure.legend(handles=_legend(results), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_panel(
    axes: Axes, estimates: dict[str, Estimate], tube: str, arm: Estimate | None
) -> None:
    marks = {name: ppl for name in estimates if (ppl := _ppl(estimates, name)) is not None}
    low, high = marks.get(tube), marks.get("elbo_k")
    if low is not None and high is not None:
        axes.plot([low, high], [0, 0], color="#bbbbbb", linewidth=7, solid_capstyle="butt")
    for name, colour in ((tube, UPPER), ("elbo_k", LOWER)):
        if name in marks:
            axes.plot(marks[name], 0, "|", color=colour, markersize=17, markeredgewidth=3)
    if "elbo" in marks:
        axes.plot(marks["elbo"], 0, "|", color=FAINT, markersize=13, markeredgewidth=2)
    for name, (shape, _) in _BIASED.items():
        if name in marks:
            axes.plot(marks[name], 0.5, shape, mfc="none", mec=INK, markersize=6.5)
    if "exact" in marks:
        axes.plot(marks["exact"], 0, "D", color=EXACT, markersize=7, mec="white", zorder=5)
    shown = [marks[n] for n in (tube, "elbo_k", "elbo", "exact", *_BIASED) if n in marks]
    _scale(axes, shown, None if arm is None else arm["ppl"])
    axes.set_ylim(-0.7, 0.9)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(labelsize=9)


def _scale(axes: Axes, shown: list[float], arm: float | None) -> None:
    """Choose the range of a panel; an ARM that is far outside becomes an arrow."""
    low, high = (min(shown), max(shown)) if shown else (1.0, 1.0)
    margin = max(0.06 * (high - low), 0.004 * high)
    if arm is not None:
        if max(high, arm) - min(low, arm) <= _NEAR * max(high - low, 0.02 * high):
            low, high = min(low, arm), max(high, arm)
            axes.axvline(arm, **ARM_STYLE)
        else:
            left = arm < low
            text = f"< ARM {ppl_text(arm)}" if left else f"ARM {ppl_text(arm)} >"
            axes.text(
                0.0 if left else 1.0,
                0.12,
                text,
                transform=axes.transAxes,
                ha="left" if left else "right",
                fontsize=9,
            )
    axes.set_xlim(low - margin, high + margin)


def _range(estimates: dict[str, Estimate], tube: str) -> str:
    """Write the exact value, or the bracket."""
    if "exact" in estimates:
        return ppl_text(estimates["exact"]["ppl"])
    bounds = [ppl_text(estimates[name]["ppl"]) for name in (tube, "elbo_k") if name in estimates]
    return " to ".join(dict.fromkeys(bounds))


def _ppl(estimates: dict[str, Estimate], name: str) -> float | None:
    ppl = estimates[name]["ppl"]
    return ppl if ppl is not None and 0 < ppl < math.inf else None


def _legend(results: Results) -> list[Line2D]:
    """List what is drawn in some panel."""
    there = {name for estimates in results["regimes"].values() for name in estimates}

    def mark(colour: str, shape: str, label: str, size: float, width: float = 1.0) -> Line2D:
        face = "none" if shape in "os^" else colour
        return Line2D(
            [], [], color=colour, marker=shape, mfc=face, linestyle="", label=label,
            markersize=size, markeredgewidth=width,
        )  # fmt: skip

    entries = [
        (tube_name(results), mark(UPPER, "|", "TUBE (at least)", 13.0, 3.0)),
        ("elbo_k", mark(LOWER, "|", "ELBO$_K$ (at most)", 13.0, 3.0)),
        ("exact", mark(EXACT, "D", "exact", 7.0)),
        ("elbo", mark(FAINT, "|", "ELBO (at most)", 11.0, 2.0)),
        *((n, mark(INK, s, f"{t} (biased)", 6.5)) for n, (s, t) in _BIASED.items()),
    ]
    handles = [handle for name, handle in entries if name in there]
    if results["arm"] is not None:
        handles.append(Line2D([], [], label="ARM", **ARM_STYLE))
    return handles
