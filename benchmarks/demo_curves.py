"""How the demo models learned: bits per byte on the validation split against CPU minutes.

    python -m benchmarks.demo_curves outputs/demo

Reads the models that the trainings kept (``outputs/demo/NAME/models``), scores some of each on the
same few validation sequences, and draws ``docs/figures/demo_training.png`` with the Kneser-Ney
n-grams of the same tokens as lines. ARMs and blocks up to 8 are exact; blocks of 16 are ELBO_32, an
upper bound of their bits. The minutes of a block model include those of the ARM that it started
from. Scored models are in ``docs/demo_curves.json``, and are not scored again.
"""

import argparse
import json
import math
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.demo_models import evenly_spaced, make_estimator, measure_ngrams, num_bytes
from tube_lightning.checkpoints import read_checkpoint
from tube_lightning.data import TokenSequences, demo_sequences
from tube_lightning.report.render.figures.canvas import (
    ARM_STYLE,
    EXACT_COLOUR,
    FAINT,
    LOWER,
    UPPER,
    new_figure,
    save_figure,
)

DOCS = Path(__file__).parent.parent / "docs"
CURVES_FILE = DOCS / "demo_curves.json"
FIGURES, FIGURE = DOCS / "figures", "demo_training"
MODELS = {
    "early": "early ARM",
    "arm": "ARM",
    "bd3lm_l4": "L' = 4",
    "bd3lm_l8": "L' = 8",
    "bd3lm_l16": "L' = 16 (ELBO$_{32}$, at most)",
}
STYLES = {
    "early": ARM_STYLE | {"linestyle": ":"},
    "arm": ARM_STYLE,
    "bd3lm_l4": {"color": EXACT_COLOUR},
    "bd3lm_l8": {"color": LOWER},
    "bd3lm_l16": {"color": UPPER},
}
NUM_SEQUENCES, NUM_ORDERINGS = 24, 32
DRAWN_NGRAMS = ("3-gram", "4-gram")

TOP = 2.2
"""Bits per byte where the figure ends: the first minutes say little."""

Curve = dict[str, tuple[float, float]]
"""By step: CPU minutes, bits per byte."""


def kept_steps(models: Path, most: int) -> list[int]:
    """Choose some of the kept models, evenly, the last among them."""
    steps = sorted(int(path.stem.removeprefix("step_")) for path in models.glob("step_*.json"))
    if not steps:
        raise FileNotFoundError(f"{models}: expected models that a training kept, got none")
    stride = -(-len(steps) // most)
    return steps[::-1][::stride][::-1]


def cpu_minutes(runs: Path, name: str, step: int) -> float:
    """Return what a kept model has cost, with the one that its training started from."""
    own: float = json.loads((runs / name / "models" / f"step_{step}.json").read_text())[
        "cpu_minutes"
    ]
    start = json.loads((runs / name / "config.json").read_text())["init_from"]
    if start is None:
        return own
    *_, before, _, kept = Path(start).parts  # .../NAME/models/step_N
    return own + cpu_minutes(runs, before, int(kept.removeprefix("step_")))


def bits_per_byte(folder: Path, text: TokenSequences, sequences: list[int]) -> float:
    """Score one model on some sequences."""
    estimate = make_estimator(read_checkpoint(folder), NUM_ORDERINGS)
    nats = sum(next(iter(estimate(text.tokens[s], s).values())) for s in sequences)
    return -nats / math.log(2) / num_bytes(text, sequences)


def measure(runs: Path, name: str, most: int, curve: Curve, progress: Progress) -> None:
    """Add the points of a training that are not there; none where only they were kept of it."""
    if curve and not (runs / name).exists():
        return
    text = demo_sequences("validation")
    sequences = evenly_spaced(text, NUM_SEQUENCES)
    for step in progress.track(kept_steps(runs / name / "models", most), description=name):
        if str(step) not in curve:
            folder = runs / name / "models" / f"step_{step}"
            curve[str(step)] = cpu_minutes(runs, name, step), bits_per_byte(folder, text, sequences)


def ngram_bits() -> dict[str, float]:
    """Score the baselines on the same sequences."""
    train, text = demo_sequences("train"), demo_sequences("validation")
    sequences = evenly_spaced(text, NUM_SEQUENCES)
    rows = measure_ngrams(train, text)
    return {row.model: row.bits_per_byte(text, sequences) or math.nan for row in rows}


def draw(curves: dict[str, Curve]) -> None:
    """Draw the curves and the n-grams."""
    figure, axes = new_figure("The demo models in training: validation split")
    for name, title in MODELS.items():
        x, y = zip(*sorted(map(tuple, curves[name].values())), strict=True)
        axes.plot(x, y, label=title, marker="o", markersize=3, **STYLES[name])
    for name, bits in ngram_bits().items():
        if name in DRAWN_NGRAMS:
            axes.axhline(bits, color=FAINT, linewidth=1)
            axes.annotate(
                name, (1, bits), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
    axes.set_ylim(top=TOP)
    axes.set_xlabel("CPU minutes of one thread, those of the early ARM included")
    axes.set_ylabel("bits per byte")
    axes.legend(frameon=False)
    save_figure(figure, FIGURES, FIGURE)


def print_last(curves: dict[str, Curve]) -> None:
    """Print where each model ended."""
    table = Table("model", "CPU minutes", "bits per byte", title="Demo models, validation split")
    for name, curve in curves.items():
        minutes, bits = max(map(tuple, curve.values()))
        table.add_row(MODELS[name], f"{minutes:.1f}", f"{bits:.4f}")
    Console().print(table)


def main() -> None:
    """Score, store and draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo_curves", description="How the demo models learned."
    )
    parser.add_argument("runs", type=Path, help="folder of the training runs, outputs/demo")
    parser.add_argument("--points", type=int, default=8, help="of each curve (%(default)s)")
    options = parser.parse_args()
    curves: dict[str, Curve] = {}
    if CURVES_FILE.exists():
        curves = json.loads(CURVES_FILE.read_text())
    with Progress(console=Console(stderr=True)) as progress:
        for name in MODELS:
            measure(options.runs, name, options.points, curves.setdefault(name, {}), progress)
            CURVES_FILE.write_text(json.dumps(curves, indent=1) + "\n")
    print_last(curves)
    draw(curves)


if __name__ == "__main__":
    main()
