"""The forest plot: each entry's value or bracket, and its paired gain over the first run."""

import math
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tube_lightning.compare.schema import ComparedEntry, ComparedValue, RunComparison
from tube_lightning.report import canvas

_Scale = Literal["ppl", "bits_per_byte"]
_BRACKET = "#bbbbbb"


def draw_forest(comparison: RunComparison) -> Figure:
    """Draw values on the left, and on the right the differences, whose errors are far smaller."""
    entries = comparison["entries"]
    figure = Figure(figsize=(9.6, 1.9 + 0.46 * len(entries)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    scale = _scale(comparison)
    for height, entry in enumerate(entries):
        _draw_value(left, entry, height, scale)
        _draw_gain(right, entry, height)
    left.set_yticks(range(len(entries)), [_tick(entry) for entry in entries], fontsize=9)
    left.set_ylim(len(entries) - 0.5, -0.5)
    left.set_xlabel("perplexity" if scale == "ppl" else "bits per byte")
    left.set_title("Value (less is better)", fontsize=10, loc="left")
    right.axvline(0, **canvas.ARM_STYLE)
    right.set_xlabel(comparison["unit"].replace("_", " "))
    right.set_title("Paired gain over the first (more is better)", fontsize=10, loc="left")
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=9)
        axes.grid(axis="x", color="#e5e5e5", linewidth=0.7)
        axes.set_axisbelow(True)
    figure.legend(
        handles=_legend(entries), loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    return figure


def _scale(comparison: RunComparison) -> _Scale:
    known = [entry["lower"]["bits_per_byte"] for entry in comparison["entries"]]
    return "ppl" if all(value is None for value in known) else "bits_per_byte"


def _draw_value(axes: Axes, entry: ComparedEntry, height: int, scale: _Scale) -> None:
    """Draw an exact value as a diamond, a bracket as a bar between its ends."""
    lower, upper = entry["lower"], entry["upper"]
    if lower["side"] is None:
        _mark(axes, _number(lower, scale), _interval(lower, scale), height, _colour(entry), "D")
        return
    if upper is not None:
        reach = [_number(upper, scale), _number(lower, scale)]
        axes.plot(reach, [height] * 2, color=_BRACKET, linewidth=7, solid_capstyle="butt")
        below = _outside(reach[0], _interval(upper, scale), left=True)
        _mark(axes, reach[0], below, height, canvas.UPPER, "|")
    at_most = _number(lower, scale)
    above = _outside(at_most, _interval(lower, scale), left=False)
    _mark(axes, at_most, above, height, canvas.LOWER, "|")


def _draw_gain(axes: Axes, entry: ComparedEntry, height: int) -> None:
    """Draw one difference, or the least and the most that brackets leave."""
    against = entry["against_first"]
    if against is None:
        return
    low, high = against["at_least"], against["at_most"]
    if low is not None and high is not None and low["value"] == high["value"]:
        _mark(axes, _or_nan(low["value"]), low["ci95"], height, _colour(entry), "D")
        return
    if low is not None and high is not None:
        reach = [_or_nan(low["value"]), _or_nan(high["value"])]
        axes.plot(reach, [height] * 2, color=_BRACKET, linewidth=7, solid_capstyle="butt")
    for end, colour in ((low, canvas.LOWER), (high, canvas.UPPER)):
        if end is not None:
            value = _or_nan(end["value"])
            whisker = _outside(value, end["ci95"], left=end is low)
            _mark(axes, value, whisker, height, colour, "|")


def _outside(value: float, interval: list[float] | None, *, left: bool) -> list[float] | None:
    """Take the half of an interval that is outside of the bracket: inside it says nothing more."""
    if interval is None:
        return None
    return [interval[0], value] if left else [value, interval[1]]


def _mark(
    axes: Axes, value: float, interval: list[float] | None, height: int, colour: str, shape: str
) -> None:
    if interval is not None:
        axes.plot(interval, [height] * 2, color=colour, linewidth=1.4)
    axes.plot(
        value, height, shape, color=colour, markersize=6 if shape == "D" else 15,
        markeredgewidth=0.8 if shape == "D" else 2.6, mec="white" if shape == "D" else colour,
        zorder=5,
    )  # fmt: skip


def _number(value: ComparedValue, scale: _Scale) -> float:
    return _or_nan(value["ppl"] if scale == "ppl" else value["bits_per_byte"])


def _interval(value: ComparedValue, scale: _Scale) -> list[float] | None:
    return value["ppl_ci95"] if scale == "ppl" else value["bits_per_byte_ci95"]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _colour(entry: ComparedEntry) -> str:
    return canvas.INK if entry["kind"] == "arm" else canvas.EXACT_COLOUR


def _tick(entry: ComparedEntry) -> str:
    against = entry["against_first"]
    word = "the first" if against is None else against["word"]
    return f"{entry['label']}\n{word}".replace("$", r"\$")


def _legend(entries: list[ComparedEntry]) -> list[Line2D]:
    """List what is drawn."""
    exact = [entry["kind"] for entry in entries if entry["lower"]["side"] is None]
    handles = []
    for kind, colour in (("model", canvas.EXACT_COLOUR), ("arm", canvas.INK)):
        if kind in exact:
            label = "block model, exact" if kind == "model" else "ARM"
            handles.append(Line2D([], [], color=colour, marker="D", linestyle="", label=label))
    if len(exact) < len(entries):
        ends = ((canvas.UPPER, "upper end of log p (TUBE)"), (canvas.LOWER, "lower end (ELBO$_K$)"))
        handles += [
            Line2D(
                [], [], color=colour, marker="|", linestyle="", label=label, markersize=13,
                markeredgewidth=2.6,
            )
            for colour, label in ends
        ]  # fmt: skip
    handles.append(Line2D([], [], color=canvas.INK, linewidth=1.4, label="95% interval"))
    return handles
