"""One look for all figures: sizes, colours that the colour-blind can tell apart, and files."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from tube_lightning.report.wording import ppl_text
from tube_lightning.whole_files import finished_file

# Okabe and Ito's colours
LOWER, UPPER, EXACT_COLOUR, SPLIT = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GOLD, FAINT, INK = "#E69F00", "#56B4E9", "#222222"
ARM_STYLE: dict[str, Any] = {"color": INK, "linestyle": (0, (5, 2)), "linewidth": 1.3}
_DPI = 150
_METADATA = {"png": {"Software": None}, "svg": {"Date": None}}


def new_figure(title: str, width: float = 7.2, height: float = 4.4) -> tuple[Figure, Axes]:
    """Make a figure with one plot, outside of pyplot's global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write png and svg; the same values give the same bytes."""
    with matplotlib.rc_context({"svg.hashsalt": name}):
        for suffix, metadata in _METADATA.items():
            with finished_file(folder / f"{name}.{suffix}") as unfinished:
                figure.savefig(unfinished, format=suffix, dpi=_DPI, metadata=metadata)
            figure.set_layout_engine("none")  # the first file has settled it for the second


def remove_figure(folder: Path, name: str) -> None:
    """Remove the files of a figure, if they are there."""
    for suffix in _METADATA:
        (folder / f"{name}.{suffix}").unlink(missing_ok=True)


def doubling_axis(axes: Axes, numbers: Iterable[int]) -> None:
    """Label a logarithmic axis with the numbers that there are."""
    ticks = list(numbers)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(tick) for tick in ticks])


def drawable(ppl: float) -> float:
    """Leave out what no axis can hold."""
    return ppl if 0 < ppl < math.inf else math.nan


def focus(axes: Axes, values: Iterable[float], centre: float, widest: float) -> None:
    """Show all values that are within ``widest`` of the centre, relatively."""
    near = [v for v in values if abs(v - centre) <= widest * centre] + [centre]
    low, high = min(near), max(near)
    margin = 0.08 * (high - low) or 0.01 * centre
    axes.set_ylim(low - margin, high + margin)


def named_level(axes: Axes, title: str, ppl: float) -> str:
    """Label a level line; say so where it is outside of the plot."""
    low, high = axes.get_ylim()
    if ppl < 1:
        return f"{title}: below 1 (tells nothing)"
    where = ", below the plot" if ppl < low else ", above the plot" if ppl > high else ""
    return f"{title}: {ppl_text(ppl)}{where}"


def mark_below(
    axes: Axes, numbers: Iterable[int], values: Iterable[float], colour: str, height: float = 0.02
) -> None:
    """Put an arrow near the foot of the plot where a curve is below it."""
    low = axes.get_ylim()[0]
    below = [n for n, v in zip(numbers, values, strict=True) if not v >= low]
    foot = axes.get_xaxis_transform()
    axes.plot(below, [height] * len(below), "v", color=colour, transform=foot, mfc="white")
