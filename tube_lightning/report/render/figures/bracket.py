"""The bracket of each regime, with the ARM beside it."""

import math
import re
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tube_lightning.bounds import Estimator, headline_bound
from tube_lightning.metrics import EXACT
from tube_lightning.regimes import Regime
from tube_lightning.report.render.figures.canvas import (
    ARM_STYLE,
    EXACT_COLOUR,
    FAINT,
    INK,
    LOWER,
    UPPER,
)
from tube_lightning.report.render.rows import draws_of, shown_estimators
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.wording import ppl_text

_NEAR = 3.0
"""The ARM is drawn in a regime's panel if that makes it at most so many times wider."""
_ENDS = {"upper": UPPER, "lower": LOWER}


def draw_bracket(results: Results) -> Figure:
    """Draw a panel for each regime, on its own scale: that of one step would hide the others."""
    regimes = results["regimes"]
    figure = Figure(figsize=(7.6, 1.5 + 0.82 * len(regimes)), layout="constrained")
    panels = figure.subplots(len(regimes), 1, squeeze=False)[:, 0]
    for axes, (name, estimates) in zip(panels, regimes.items(), strict=True):
        _draw_panel(axes, estimates, results)
        title = f"{Regime.parse(name).title}\n{_range(estimates, _ends(results))}"
        axes.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9.5)
    panels[-1].set_xlabel("perplexity (each regime on its own scale)")
    figure.suptitle("Where the perplexity is: TUBE below, ELBO$_K$ above", fontsize=11)
    figure.legend(handles=_legend(results), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _ends(results: Results) -> tuple[str, str]:
    """Name the ends of the bracket."""
    draws = draws_of(results)
    return headline_bound("upper", draws).name, headline_bound("lower", draws).name


def _draw_panel(axes: Axes, estimates: dict[str, Estimate], results: Results) -> None:
    marks = {name: ppl for name in estimates if (ppl := _ppl(estimates, name)) is not None}
    ends = _ends(results)
    if marks.keys() >= set(ends):
        reach = [marks[end] for end in ends]
        axes.plot(reach, [0, 0], color="#bbbbbb", linewidth=7, solid_capstyle="butt")
    shown = [e for e in shown_estimators(results) if e.name in marks]
    for estimator in shown:
        mark = _mark(estimator, ends)
        axes.plot(
            marks[estimator.name], mark.height, mark.shape, color=mark.colour, mfc="none",
            mec=mark.colour, markersize=mark.size, markeredgewidth=mark.width,
        )  # fmt: skip
    if EXACT in marks:
        axes.plot(marks[EXACT], 0, "D", color=EXACT_COLOUR, markersize=7, mec="white", zorder=5)
    arm = results["arm"]
    values = [marks[name] for name in [*(e.name for e in shown), EXACT] if name in marks]
    _scale(axes, values, None if arm is None else arm["ppl"])
    axes.set_ylim(-0.7, 0.9)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(labelsize=9)


class _Mark(NamedTuple):
    """How an estimator is drawn in a panel and in the legend."""

    colour: str
    shape: str
    size: float
    legend_size: float
    width: float
    height: float = 0.0


def _mark(estimator: Estimator, ends: tuple[str, str]) -> _Mark:
    """Choose bars for bounds, thick ones for the bracket's ends, and a sign for all others."""
    if not estimator.bound_preserving:
        return _Mark(INK, estimator.marker, 6.5, 6.5, 1.0, height=0.5)
    if estimator.name in ends:
        return _Mark(_ENDS[estimator.side], "|", 17.0, 13.0, 3.0)
    return _Mark(FAINT, "|", 13.0, 11.0, 2.0)


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


def _range(estimates: dict[str, Estimate], ends: tuple[str, str]) -> str:
    """Write the exact value, or the bracket."""
    if EXACT in estimates:
        return ppl_text(estimates[EXACT]["ppl"])
    bounds = [ppl_text(estimates[name]["ppl"]) for name in ends if name in estimates]
    return " to ".join(dict.fromkeys(bounds))


def _ppl(estimates: dict[str, Estimate], name: str) -> float | None:
    ppl = estimates[name]["ppl"]
    return ppl if ppl is not None and 0 < ppl < math.inf else None


def _legend(results: Results) -> list[Line2D]:
    """List what is drawn in some panel: the bracket, other bounds, what promises nothing."""
    there = {name for estimates in results["regimes"].values() for name in estimates}
    ends, shown = _ends(results), [e for e in shown_estimators(results) if e.name in there]
    main, others = ([e for e in shown if (e.name in ends) == is_end] for is_end in (True, False))
    handles = [_handle(e, ends) for e in main]
    if EXACT in there:
        handles.append(_line(_Mark(EXACT_COLOUR, "D", 7.0, 7.0, 1.0), EXACT))
    others.sort(key=lambda e: not e.bound_preserving)
    handles += [_handle(e, ends) for e in others]
    if results["arm"] is not None:
        handles.append(Line2D([], [], label="ARM", **ARM_STYLE))
    return handles


def _handle(estimator: Estimator, ends: tuple[str, str]) -> Line2D:
    relation = "at least" if estimator.side == "upper" else "at most"
    promise = relation if estimator.bound_preserving else "biased"
    return _line(_mark(estimator, ends), f"{_math(estimator.title)} ({promise})")


def _line(mark: _Mark, label: str) -> Line2D:
    return Line2D(
        [], [], color=mark.colour, marker=mark.shape, linestyle="", label=label,
        mfc=mark.colour if mark.shape in "|D" else "none",
        markersize=mark.legend_size, markeredgewidth=mark.width,
    )  # fmt: skip


def _math(title: str) -> str:
    """Write subscripts as matplotlib does, and its own signs as they are."""
    return re.sub(r"_(\w)", r"$_\1$", title.replace("\\", r"\\").replace("$", r"\$"))
