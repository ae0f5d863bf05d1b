"""Report on a finished evaluation again: python -m tube_lightning.report --help."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from tube_lightning.metrics import EstimatorSettings
from tube_lightning.report.parts import read_run
from tube_lightning.report.write import write_report


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and write the report; 2 if it cannot be done."""
    options = _parser().parse_args(arguments)
    given = {
        "cubo_beta": options.cubo_beta,
        "tvo_partitions": options.tvo_partitions,
        "isvgb_pairs": options.isvgb_pairs,
    }
    try:
        settings = EstimatorSettings(**read_run(options.directory)["estimators"])
        settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
        write_report(
            options.directory,
            settings=settings,
            num_orderings=options.num_orderings,
            output=options.output,
        )
    except (ValueError, OSError, json.JSONDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tube_lightning.report",
        description="Make results.json, the tables and the figures of an evaluation again from the "
        "scores in its directory: no network, no text, no GPU. Options not given stay as they "
        "were in the run.",
    )
    parser.add_argument("directory", type=Path, help="output_dir of evaluate.py")
    parser.add_argument("--cubo-beta", type=float, metavar="X", help="exponent of CUBO, at least 1")
    parser.add_argument("--tvo-partitions", type=int, metavar="N", help="grid points of TVO")
    parser.add_argument("--isvgb-pairs", type=int, metavar="N", help="pairs of means of IS-VG-B")
    parser.add_argument(
        "--num-orderings", type=int, metavar="N", help="use the first N orderings of each block"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write here instead, and leave the run as it is"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
