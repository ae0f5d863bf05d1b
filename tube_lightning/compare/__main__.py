"""Put finished evaluations side by side: python -m tube_lightning.compare --help."""

import argparse
import sys
from pathlib import Path

from tube_lightning.compare.write import write_comparison
from tube_lightning.machine import use_granted_threads


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and compare; 2 if it cannot be done."""
    options = _parser().parse_args(arguments)
    use_granted_threads()
    try:
        write_comparison(options.runs, options.output, regime=options.regime)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"The comparison is in {options.output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tube_lightning.compare",
        description="Compare finished runs of evaluate.py with the first of them, on the text that "
        "they share, by paired differences: exact values where there are any, else the bracket of "
        "ELBO_K and TUBE; and the runs' autoregressive models. Runs with the same tokens are "
        "compared per token on their common sequences, runs with other tokens of the same text per "
        "byte, paired by document. Runs on other text are refused. No network, no text, no GPU.",
        epilog="Example, two block sizes, then two regimes of one run: "
        "python -m tube_lightning.compare outputs/l4 outputs/l8; "
        "python -m tube_lightning.compare outputs/l4 outputs/l4:nfe_2",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="DIR[:REGIME]",
        help="output_dir of evaluate.py, two or more; REGIME is ao_arm (any order, the default), "
        "nfe_T or chunks_T",
    )
    parser.add_argument("--regime", metavar="NAME", help="of the runs that are given without one")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("outputs/compare"),
        metavar="DIR",
        help="where comparison.md, .tex, .json, .png and .svg go (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
