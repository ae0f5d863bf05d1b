"""How fast training learns: exact bits per byte on the validation split, against what it cost.

    python -m benchmarks.training                       # every recipe at 4, 12 and 20 CPU minutes
    python -m benchmarks.training --recipes copies_muon --minutes 4
    python -m benchmarks.training --show    # the table (also in docs/RESULTS.md) and the figure

Byte tokens and blocks of 4 for all recipes. Each training is ``train.py`` in a process of its own
with one thread; its number of steps is the CPU minutes that it may take by those of its first
steps, and its learning rate falls to zero at the last one. What is counted: the CPU minutes of all
steps, of those before in the lineage as well (the early ARM that some start from), and the floating
point operations of their matrix products, forward, backward and in the optimizer. A killed
benchmark goes on with the same command; finished rows are in ``docs/training_curves.json``.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.utils import instantiate
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from benchmarks.demo_models import exact_nats
from tube_lightning.checkpoints import read_checkpoint
from tube_lightning.data import demo_sequences
from tube_lightning.networks import BlockDiffusion
from tube_lightning.report.render.figures.canvas import (
    EXACT_COLOUR,
    FAINT,
    GOLD,
    LOWER,
    SPLIT,
    UPPER,
    new_figure,
    save_figure,
)

ROOT = Path(__file__).parent.parent
CURVES_FILE = ROOT / "docs" / "training_curves.json"
FIGURE_FILE = ROOT / "docs" / "figures" / "training.png"
PAGE = ROOT / "docs" / "RESULTS.md"
_MARKED = re.compile("<!-- training -->.*?<!-- end of training -->", re.S)
HEADINGS = ("recipe", "CPU minutes", "PFLOP", "bits per byte", "of the first version's minutes")
LENGTH = 256
BYTES = ("network=bytes", "data.tokenizer=byte", "trainer.devices=1", "trainer.accelerator=cpu")
ADAMW = ("optimizer=adamw", "optimizer.learning_rate=2e-3")
MUON = ("optimizer=muon", "optimizer.learning_rate=1e-2")
CLIPPED = ("noise=time", "noise.min_time=0.3")
FROM_ARM = (
    "objective=bd3lm",
    "objective.adaln=false",
    "schedule=linear",
    "schedule.warmup_steps=50",
    "module.ema_decay=0.998",
)
QUICK = ("optimizer.momentum=0.9", "schedule.warmup_steps=0", "module.ema_decay=0.9")
EARLY_ARM = (
    "objective=arm",
    *MUON,
    "batch_size=4",
    "schedule=constant",
    "schedule.warmup_steps=50",
    "module.ema_decay=0.9999",
)
EARLY_ARM_STEPS = 1500
CALIBRATION = (20, 60)
"""Steps of a short run between which the time of a step is measured."""


@dataclass(frozen=True)
class Recipe:
    """A way to train a block model of bytes from the early ARM."""

    title: str
    overrides: tuple[str, ...]
    early_steps: int = EARLY_ARM_STEPS
    """of the ARM that it starts from"""


RECIPES = {
    "arm_b8": Recipe(
        "from an early ARM, AdamW, batch 8", (*FROM_ARM, *ADAMW, *CLIPPED, "batch_size=8")
    ),
    "arm_b2": Recipe(
        "from an early ARM, AdamW, batch 2", (*FROM_ARM, *ADAMW, *CLIPPED, "batch_size=2")
    ),
    "copies_muon": Recipe(
        "from an early ARM, 2 copies by count, Muon, batch 4",
        (*FROM_ARM, *MUON, "objective.copies=2", "batch_size=4"),
    ),
    "copies_muon_quick": Recipe(
        "from an earlier ARM, 2 copies by count, Muon, momentum 0.9, no warm-up",
        (*FROM_ARM, *MUON, *QUICK, "objective.copies=2", "batch_size=4"),
        early_steps=800,
    ),
}
EARLY, FIRST = "early_arm", "first"


@dataclass(frozen=True)
class Cost:
    """What a model took, with all that it started from."""

    cpu_minutes: float
    flops: float

    def __add__(self, other: "Cost") -> "Cost":
        """Add the cost of what came before."""
        return Cost(self.cpu_minutes + other.cpu_minutes, self.flops + other.flops)


@dataclass(frozen=True)
class Row:
    """One model of one training."""

    recipe: str
    title: str
    budget: float | None
    """minutes that the training was given; None for a run to its own end"""
    step: int
    cpu_minutes: float
    """of the whole lineage"""
    flops: float
    bits_per_byte: float
    command: str


class Trainings:
    """Runs of ``train.py`` under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, name: str, overrides: Iterable[str], steps: int, keep_every: int) -> Path:
        """Train to the end, or go on; return where the kept models are."""
        output_dir = self.folder / name
        command = [
            sys.executable,
            str(ROOT / "train.py"),
            *overrides,
            f"trainer.max_steps={steps}",
            f"keep_every={keep_every}",
            f"output_dir={output_dir}",
            "trainer.limit_val_batches=0",
            "checkpoint_every=200",
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with (self.folder / f"{name}.log").open("w") as log:
            subprocess.run(command, check=True, env=environment, stdout=log, stderr=log)
        return output_dir / "models"

    def early_arm(self, steps: int) -> tuple[Path, Cost]:
        """Train the ARM that block models start from, unless it is there."""
        overrides = (*BYTES, *EARLY_ARM)
        models = self.run(f"{EARLY}_{steps}", overrides, steps, steps)
        return models / f"step_{steps}", step_cost(models, steps, overrides)

    def seconds_a_step(self, name: str, overrides: Iterable[str]) -> float:
        """Measure the CPU seconds of a step, past the first ones."""
        first, last = CALIBRATION
        models = self.run(f"{name}_calibration", overrides, last, first)
        before, after = (read_cost(models, step)["cpu_minutes"] for step in CALIBRATION)
        return 60 * (after - before) / (last - first)


def read_cost(models: Path, step: int) -> dict[str, float]:
    """Read what a kept model has cost."""
    cost: dict[str, float] = json.loads((models / f"step_{step}.json").read_text())
    return cost


def step_cost(models: Path, step: int, overrides: Iterable[str]) -> Cost:
    """Return the cost of a training up to a kept model."""
    return Cost(read_cost(models, step)["cpu_minutes"], step * flops_a_step(overrides))


def flops_a_step(overrides: Iterable[str]) -> float:
    """Count the operations of one step: forward, backward, optimizer."""
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = hydra.compose("train", [*overrides, "output_dir=nowhere", "init_from=null"])
    module = instantiate(config.module, ema_decay=0.0)  # whatever it is, the step is the same
    optimizer = module.optimizer(module.network)
    tokens = torch.zeros(config.batch_size, config.network.length, dtype=torch.int64)
    counter = FlopCounterMode(display=False, custom_mapping=_cpu_operators())
    with counter:
        module.objective(module.network, tokens, torch.Generator()).sum_nats.backward()
        optimizer.step()
    return float(counter.get_total_flops())


def _cpu_operators() -> dict[Any, Any]:
    """Count attention on a CPU as torch counts it on a GPU, and the linear maps of oneDNN."""
    aten = torch.ops.aten
    counts: dict[Any, Any] = {torch.ops.mkldnn._linear_pointwise: _linear_flops}
    for suffix in ("", "_backward"):
        known = flop_registry[getattr(aten, f"_scaled_dot_product_flash_attention{suffix}")]
        count = partial(known)
        count._get_raw = True  # type: ignore[attr-defined] # it takes tensors, not their shapes
        counts[getattr(aten, f"_scaled_dot_product_flash_attention_for_cpu{suffix}")] = count
    return counts


def _linear_flops(x: torch.Size, weight: torch.Size, *_: object, **__: object) -> int:
    """Count one multiplication and one addition for each weight and token."""
    return 2 * math.prod(x[:-1]) * math.prod(weight)


def validation_bits(folder: Path) -> float:
    """Return exact any-order bits per byte on the whole validation split."""
    text = demo_sequences("validation", LENGTH, tokenizer="byte")
    model = BlockDiffusion.from_network(read_checkpoint(folder))
    nats = sum(exact_nats(model, tokens) for tokens in track(text.tokens, folder.name))
    return -nats / math.log(2) / (text.num_scored_bytes or math.nan)


def measure(trainings: Trainings, name: str, minutes: float) -> Row:
    """Train one recipe for so many minutes, its early ARM not counted, and evaluate the last."""
    recipe = RECIPES[name]
    early, early_cost = trainings.early_arm(recipe.early_steps)
    overrides = (*BYTES, *recipe.overrides, f"init_from={early}")
    seconds = trainings.seconds_a_step(name, overrides)
    steps = max(1, round(60 * minutes / seconds))
    models = trainings.run(f"{name}_{minutes:g}", overrides, steps, steps)
    cost = early_cost + step_cost(models, steps, overrides)
    return Row(
        recipe=name,
        title=recipe.title,
        budget=minutes,
        step=steps,
        cpu_minutes=cost.cpu_minutes,
        flops=cost.flops,
        bits_per_byte=validation_bits(models / f"step_{steps}"),
        command=f"python -m benchmarks.training --recipes {name} --minutes {minutes:g}",
    )


def read_rows() -> list[Row]:
    """Read what is measured."""
    return [Row(**row) for row in json.loads(CURVES_FILE.read_text())]


def write_rows(rows: list[Row]) -> None:
    """Put it on disk."""
    CURVES_FILE.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def main() -> None:
    """Measure what is not yet measured, and show it all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description="How fast training learns."
    )
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--minutes", nargs="+", type=float, default=[4.0, 12.0, 20.0])
    parser.add_argument("--folder", type=Path, default=Path("outputs/benchmark_training"))
    parser.add_argument("--show", action="store_true", help="measure nothing")
    options = parser.parse_args()
    rows = read_rows() if CURVES_FILE.exists() else []
    if not options.show:
        options.folder.mkdir(parents=True, exist_ok=True)
        trainings = Trainings(options.folder.resolve())
        done = {(row.recipe, row.budget) for row in rows}
        for minutes in options.minutes:
            for name in options.recipes:
                if (name, minutes) not in done:
                    rows = [*read_rows(), measure(trainings, name, minutes)]
                    write_rows(rows)
    show(rows)


def show(rows: list[Row]) -> None:
    """Print the table, put it into the page and draw the figure."""
    table = Table(title="Exact bits per byte on the validation split, blocks of 4, byte tokens")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "recipe" else "right")
    order = (FIRST, *RECIPES)
    rows = sorted(rows, key=lambda row: (order.index(row.recipe), row.cpu_minutes))
    last = [row for row in rows if row.recipe == FIRST][-1]
    cells = [
        (
            row.title,
            f"{row.cpu_minutes:.1f}",
            f"{row.flops / 1e15:.3f}",
            f"{row.bits_per_byte:.4f}",
            f"{row.cpu_minutes / last.cpu_minutes:.0%}",
        )
        for row in rows
    ]
    for line in cells:
        table.add_row(*line)
    Console().print(table)
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *cells]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    marked = f"<!-- training -->\n\n{text}\n\n<!-- end of training -->"
    PAGE.write_text(_MARKED.sub(lambda _: marked, PAGE.read_text()))
    draw(rows, last)


def draw(rows: list[Row], last: Row) -> None:
    """Draw bits per byte against CPU minutes, a line a recipe."""
    figure, axes = new_figure("Training a block model of bytes, L' = 4 (exact, validation split)")
    colours = dict(zip((FIRST, *RECIPES), (LOWER, GOLD, SPLIT, EXACT_COLOUR, UPPER), strict=True))
    for name in dict.fromkeys(row.recipe for row in rows):
        mine = sorted((r for r in rows if r.recipe == name), key=lambda row: row.cpu_minutes)
        x, y = [r.cpu_minutes for r in mine], [r.bits_per_byte for r in mine]
        axes.plot(x, y, marker="o", markersize=4, color=colours[name], label=mine[0].title)
    axes.axhline(last.bits_per_byte, color=FAINT, linewidth=1)
    axes.set_xlabel("CPU minutes of one thread, those of what it started from included")
    axes.set_ylabel("bits per byte")
    axes.set_ylim(top=min(3.0, 0.05 + max(row.bits_per_byte for row in rows)))
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    save_figure(figure, FIGURE_FILE.parent, FIGURE_FILE.stem)


if __name__ == "__main__":
    main()
