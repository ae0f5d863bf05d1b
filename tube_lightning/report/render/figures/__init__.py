"""The figures of a report. Each says what it wants measured, and draws that."""

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from tube_lightning.measure import Bank, measure_against
from tube_lightning.regimes import Regime
from tube_lightning.report.render.figures import canvas
from tube_lightning.report.render.figures.bracket import draw_bracket
from tube_lightning.report.render.figures.canvas import remove_figure, save_figure
from tube_lightning.report.render.figures.convergence import Convergence
from tube_lightning.report.render.figures.cubo_heatmap import CuboHeatmap
from tube_lightning.report.render.figures.levels import Levels, figure_regime
from tube_lightning.report.render.figures.surrogates import Surrogates
from tube_lightning.report.schema import Results
from tube_lightning.scores import BlockScores, RegimeView

__all__ = ["canvas", "write_figures"]

_CURVES = (Surrogates, CuboHeatmap, Convergence)


def write_figures(
    results: Results, parts: Iterable[BlockScores], bank: Bank | None, folder: Path
) -> None:
    """Draw the bracket, and the curves of a regime in which orderings matter, if there is one.

    Curves are measured in one more pass over the parts. Those of an earlier report that do not
    belong to this one are removed.
    """
    save_figure(draw_bracket(results), folder, "bracket")
    regime = figure_regime(results["regimes"])
    drawn = set() if regime is None else _write_curves(regime, parts, bank, folder)
    for name in {curve.name for curve in _CURVES} - drawn:
        remove_figure(folder, name)


def _write_curves(
    regime: Regime, parts: Iterable[BlockScores], bank: Bank | None, folder: Path
) -> set[str]:
    """Draw what can be drawn of a regime; return the names."""
    views = _show_shuffled(regime, parts, bank)
    first = next(views)
    if first[0].regime.scores.shape[-1] < 2:
        return set()
    levels = Levels.of(regime, first[0])
    curves = [curve(levels) for curve in _CURVES]
    wanted = list(dict.fromkeys(quantity for curve in curves for quantity in curve.quantities))
    values = measure_against(levels.reference, wanted, chain([first], views))
    if not math.isfinite(values[levels.reference].ppl):
        return set()
    for curve in curves:
        save_figure(curve.draw(values), folder, curve.name)
    return {curve.name for curve in curves}


def _show_shuffled(
    regime: Regime, parts: Iterable[BlockScores], bank: Bank | None
) -> Iterator[tuple[RegimeView, BlockScores]]:
    """Show part after part of a regime; a bank in a random order for each block."""
    for part in parts:
        shown = part if bank is None else bank.shuffle(part)
        yield shown.views()[regime.name], shown
