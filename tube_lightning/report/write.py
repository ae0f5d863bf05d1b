"""A finished run as results.json, tables and figures."""

import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tube_lightning.metrics import EstimatorSettings
from tube_lightning.report.curves import figure_regime, measure_curves
from tube_lightning.report.documents import latex, markdown
from tube_lightning.report.estimates import (
    FEWEST_SEQUENCES,
    check_consistency,
    estimate,
    regime_estimates,
)
from tube_lightning.report.figures import (
    draw_bracket,
    draw_convergence,
    draw_cubo_heatmap,
    draw_surrogates,
    remove_figure,
    save_figure,
)
from tube_lightning.report.measurement import CorpusCounts, RegimeValues, measure_regimes
from tube_lightning.report.paper_comparison import compare_with_paper
from tube_lightning.report.parts import RunParts, read_run
from tube_lightning.report.schema import SCHEMA_VERSION, Estimate, Results, RunRecord
from tube_lightning.report.screen import show_results
from tube_lightning.report.verdict import verdict_sentence
from tube_lightning.report.views import ARM, ARM_FT, Reseeding, reported_views, shuffled_views
from tube_lightning.rundir import finished_file

RESULTS_FILE, FIGURES_FOLDER = "results.json", "figures"
_CURVES = {
    "surrogates": draw_surrogates,
    "cubo_heatmap": draw_cubo_heatmap,
    "convergence": draw_convergence,
}


def write_report(
    directory: Path,
    *,
    settings: EstimatorSettings | None = None,
    num_orderings: int | None = None,
    output: Path | None = None,
    patience: float = 0.0,
    show: bool = True,
) -> Results:
    """Write results.json, table.md, table.tex and figures of the run in ``directory``.

    All values follow from the parts on disk, read once in the order of their batches: how many
    devices scored them does not matter. ``settings`` and ``num_orderings`` (the first so many)
    replace the run's, ``output`` is where to write (default: the run's directory), ``patience`` how
    many seconds to wait for parts that other machines wrote, and ``show`` prints the table and the
    verdict.
    """
    start = time.perf_counter()
    directory = Path(directory)
    record = read_run(directory)
    scored_with = EstimatorSettings(**record["estimators"])
    settings = settings or scored_with
    if num_orderings is not None and record["protocol"].get("bank"):
        raise ValueError(
            f"num_orderings: expected none for blocks that share a bank of orderings, got "
            f"{num_orderings}: a bank is one draw, and may be sorted"
        )
    parts = RunParts(directory, record["num_batches"], num_orderings, patience)
    reseeding = _reseeding(record)
    regimes, counts = measure_regimes(reported_views(parts, settings, reseeding), settings)
    results = _results(record, regimes, counts, settings)
    output = directory if output is None else Path(output)
    _write_figures(results, parts, reseeding, output / FIGURES_FOLDER)
    results["seconds"]["report"] = time.perf_counter() - start
    _write_text(output / "table.md", markdown(results))
    changes = {k: v for k, v in asdict(settings).items() if v != getattr(scored_with, k)}
    _write_text(output / "table.tex", latex(results, _command(directory, changes, num_orderings)))
    text = json.dumps(results, indent=2, allow_nan=False, ensure_ascii=False)
    _write_text(output / RESULTS_FILE, text + "\n")
    if show:
        show_results(results)
    if counts.sequences >= FEWEST_SEQUENCES:
        check_consistency(regimes)
    return results


def _command(directory: Path, changes: dict[str, Any], num_orderings: int | None) -> str:
    """Write the command that makes this report again."""
    changes = changes if num_orderings is None else {**changes, "num_orderings": num_orderings}
    options = [f" --{name.replace('_', '-')} {value}" for name, value in changes.items()]
    return f"python -m tube_lightning.report {directory}{''.join(options)}"


def _reseeding(record: RunRecord) -> Reseeding | None:
    """Tell how the paper's protocol resamples; None for the default's fresh orderings."""
    num_reseeds = record["protocol"].get("num_reseeds", 0)
    return Reseeding(record["protocol"]["seed"], num_reseeds) if num_reseeds else None


def _results(
    record: RunRecord,
    regimes: dict[str, RegimeValues],
    counts: CorpusCounts,
    settings: EstimatorSettings,
) -> Results:
    estimates = {name: regime_estimates(regime) for name, regime in regimes.items()}
    arms = _arm_estimates(next(iter(regimes.values())))
    table, size = record.get("paper_table"), record["model"]["block_size"]
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict_sentence(regimes),
        "regimes": estimates,
        "arm": arms.get(ARM),
        "arm_ft": arms.get(ARM_FT),
        "counts": {
            "sequences": counts.sequences,
            "blocks": counts.blocks,
            "tokens": counts.tokens,
            "batches": record["num_batches"],
            "orderings": counts.orderings,
        },
        "tails": {name: r.tail for name, r in regimes.items() if r.tail is not None},
        "paper": compare_with_paper(table, size, estimates, arms.get(ARM), settings)
        if table
        else None,
        "estimators": asdict(settings),
        "protocol": record["protocol"],
        "model": record["model"],
        "data": record["data"],
        "seconds": {"scoring": counts.seconds, "report": 0.0},
        "versions": record["versions"],
        "config": record["config"],
    }


def _arm_estimates(regime: RegimeValues) -> dict[str, Estimate]:
    return {arm.name: estimate(arm, regime.values[arm.name]) for arm in regime.arms}


def _write_figures(
    results: Results, parts: RunParts, reseeding: Reseeding | None, folder: Path
) -> None:
    """Draw the bracket, and the curves of a regime in which orderings matter, if there is one.

    Curves of an earlier report that this one has not are removed.
    """
    save_figure(draw_bracket(results), folder, "bracket")
    regime = figure_regime(results["regimes"])
    views = shuffled_views(parts, reseeding)
    curves = None if regime is None else measure_curves(views, regime)
    for name, draw in _CURVES.items():
        if curves is not None and math.isfinite(curves.reference.ppl):
            save_figure(draw(curves), folder, name)
        else:
            remove_figure(folder, name)


def _write_text(path: Path, text: str) -> None:
    with finished_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
