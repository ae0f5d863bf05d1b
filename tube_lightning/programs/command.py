"""``tube-lightning NAME ...``: which programs there are. Nothing slow is imported before one is."""

import os
import sys
from importlib import import_module

from tube_lightning import __version__

PROGRAMS = {
    "evaluate": ("tube_lightning.programs.evaluate", "bracket the likelihood of a block model"),
    "train": ("tube_lightning.programs.train", "train a block model, a masked one or an ARM"),
    "sample": ("tube_lightning.programs.sample", "draw sequences from a block model"),
    "report": ("tube_lightning.report.__main__", "report on a finished evaluation again"),
    "compare": ("tube_lightning.compare.__main__", "put finished evaluations side by side"),
    "doctor": ("tube_lightning.doctor.__main__", "look at this machine"),
    "slurm": ("tube_lightning.programs.slurm", "write job scripts for SLURM"),
}
"""The module of each program, whose ``main`` takes the words after its name; and what it does."""


def main() -> None:
    """Run the program that the first word of the command line names."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
    elif name == "--version":
        print(f"tube-lightning {__version__}")
    elif name in PROGRAMS:
        run_program(name, words)
    else:
        print(f"error: expected one of {', '.join(PROGRAMS)}, got {name!r}", file=sys.stderr)
        raise SystemExit(2)


def run_program(name: str, words: list[str] | None = None) -> None:
    """Run a program on words, or on those of the command line; end with its exit code."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # lost connections take it a page
    module = import_module(PROGRAMS[name][0])
    code = module.main(sys.argv[1:] if words is None else words)
    if code:
        raise SystemExit(code)


def _help() -> str:
    lines = (f"  {name:10}{does}" for name, (_, does) in PROGRAMS.items())
    return "\n".join(
        [
            "usage: tube-lightning PROGRAM ...     (PROGRAM --help tells what it takes)",
            "",
            *lines,
            "",
            "Experiments of your own, DIR/experiment/NAME.yaml: --config-dir DIR experiment=NAME",
        ]
    )
