"""A comparison as files: JSON, tables and one figure."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from tube_lightning.compare.comparison import compare_runs
from tube_lightning.compare.forest import draw_forest
from tube_lightning.compare.schema import RunComparison
from tube_lightning.compare.tables import latex, markdown, show
from tube_lightning.report import canvas, short_name
from tube_lightning.rundir import write_text

NAME = "comparison"
"""of all files, whatever their suffix"""


def write_comparison(
    names: Sequence[str], output: Path, *, regime: str | None = None, on_screen: bool = True
) -> RunComparison:
    """Compare runs (DIR or DIR:REGIME), write all files into ``output``, and print the table."""
    comparison = compare_runs(names, regime)
    chosen = "" if regime is None else f" --regime {regime}"
    told = shlex.join(map(short_name, names))
    command = f"python -m tube_lightning.compare {told}{chosen}"
    write_text(output / f"{NAME}.md", markdown(comparison))
    write_text(output / f"{NAME}.tex", latex(comparison, command))
    canvas.save_figure(draw_forest(comparison), output, NAME)
    text = json.dumps(comparison, indent=2, allow_nan=False, ensure_ascii=False)
    write_text(output / f"{NAME}.json", text + "\n")
    if on_screen:
        show(comparison)
    return comparison
