"""A finished run as results.json, tables and figures."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import Bank, RunParts, SharedText, measure_regimes
from tube_lightning.report.estimates import check_consistency
from tube_lightning.report.per_byte import compare_per_byte
from tube_lightning.report.render import latex, markdown, short_name, show_results, write_figures
from tube_lightning.report.results import conclude
from tube_lightning.report.schema import Results
from tube_lightning.rundir import (
    FIGURES_FOLDER,
    LATEX_FILE,
    MARKDOWN_FILE,
    RESULTS_FILE,
    RunRecord,
    write_text,
)


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
    record = RunRecord.read(directory)
    settings = settings or record.estimators
    if num_orderings is not None and record.protocol.bank:
        raise ValueError(
            f"num_orderings: expected none for blocks that share a bank of orderings, got "
            f"{num_orderings}: a bank is one draw, and may be sorted"
        )
    parts = RunParts(directory, record.num_batches, num_orderings, patience)
    bank = Bank.of(record.protocol)
    regimes, counts = measure_regimes(parts, settings, bank)
    per_byte = None
    if record.other_arm is not None and (shared := SharedText.read(directory)) is not None:
        narrow = measure_regimes(shared.narrow(parts), settings, bank)
        per_byte = compare_per_byte(*narrow, record.other_arm)
    results = conclude(record, regimes, counts, settings, num_orderings, per_byte)
    output = directory if output is None else Path(output)
    write_figures(results, parts, bank, output / FIGURES_FOLDER)
    results["seconds"]["report"] = time.perf_counter() - start
    write_text(output / MARKDOWN_FILE, markdown(results))
    changes = {k: v for k, v in settings.items() if v != record.estimators[k]}
    command = _command(directory, changes, num_orderings)
    write_text(output / LATEX_FILE, latex(results, command, directory.resolve().name))
    text = json.dumps(results, indent=2, allow_nan=False, ensure_ascii=False)
    write_text(output / RESULTS_FILE, text + "\n")
    if show:
        show_results(results)
    check_consistency(regimes)
    return results


def _command(directory: Path, changes: Mapping[str, Any], num_orderings: int | None) -> str:
    """Write the command that makes this report again."""
    given = {**changes, **({} if num_orderings is None else {"num_orderings": num_orderings})}
    options = [f" --{name.replace('_', '-')} {value}" for name, value in given.items()]
    return f"python -m tube_lightning.report {short_name(str(directory))}{''.join(options)}"
