"""Bracket the likelihood of masked-diffusion and any-order language models.

The stages, as the data flows; a module imports only from its own and those above it:

    checks        what settings have in common, wherever they are checked
    usage         the command line: help, and mistyped keys
    records       one way to go through records of tensors
    placement     which device tensors live on: float64 is not everywhere
    regimes       any order, T steps, equal chunks: their names and titles
    randomness    the streams of random numbers, in one table
    protocol      how blocks are scored, and what is made of the scores
    data          text -> token sequences -> batches
    orderings     reveal times -> orderings, steps and revealed sets
    networks      what a model is to the rest (BlockModel and friends), and ours
    demo          the embedded checkpoints
    checkpoints   files of others -> models: families, readers, plugins; nothing is executed
    memory        sizes of networks and devices -> how many tokens at once
    scoring       revealed sets -> the table of log p(x_d | revealed set)
    lattice       the table -> exact likelihoods, and scores of orderings
    bounds        scores of orderings -> ELBO, TUBE, CUBO, TVO, IS-VG-B; the table of estimators
    decisions     scores of orderings -> which of a few texts is likelier, if that can be said
    rundir        a run's directory: file names, record, whole files only
    scores        what is known of each block: records, and their files
    metrics       sums over batches and processes (torchmetrics)
    cluster       processes, signals, SLURM
    loggers       curves to Weights & Biases
    terminal      where bars and lines for people go
    evaluator     a batch through the networks, to disk, to the running bounds (Lightning)
    measure       files -> quantities of the corpus with their errors; banks and re-seeds
    report        quantities -> estimates, verdict, tables and figures
    compare       finished runs side by side: paired differences, tables and a figure
    pipeline      checkpoints and text in, results out: evaluate.py and notebooks
    training      objectives, averages, resuming: train.py
    sampling      models -> sequences in files: sample.py
    doctor        this machine: versions, devices, parity with the CPU, speed
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tube_lightning.checkpoints import load_arm as load_arm
    from tube_lightning.checkpoints import load_block_model as load_block_model
    from tube_lightning.decisions import Choice as Choice
    from tube_lightning.decisions import decide as decide
    from tube_lightning.pipeline import evaluate as evaluate
    from tube_lightning.scoring import conditional_table as conditional_table

__all__ = ["Choice", "conditional_table", "decide", "evaluate", "load_arm", "load_block_model"]

_HOMES = {
    "Choice": "tube_lightning.decisions",
    "conditional_table": "tube_lightning.scoring",
    "decide": "tube_lightning.decisions",
    "evaluate": "tube_lightning.pipeline",
    "load_arm": "tube_lightning.checkpoints",
    "load_block_model": "tube_lightning.checkpoints",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (the module's attributes)
    """Import what is slow to import when it is asked for: torch, and Lightning for ``evaluate``."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what there is for users, imported or not."""
    return sorted(__all__)
