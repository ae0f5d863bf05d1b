"""Report on a finished evaluation again: python -m tube_lightning.report --help."""

import argparse
import sys
from pathlib import Path

from tube_lightning.bounds import EstimatorSettings, list_settings
from tube_lightning.machine import use_granted_threads
from tube_lightning.report.write import write_report
from tube_lightning.rundir import RunRecord


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and write the report; 2 if it cannot be done."""
    options = _parser().parse_args(arguments)
    use_granted_threads()
    given = {name: getattr(options, name) for name, _ in list_settings()}
    try:
        before = RunRecord.read(options.directory).estimators
        changes = {name: value for name, value in given.items() if value is not None}
        write_report(
            options.directory,
            settings=EstimatorSettings(**{**before, **changes}),
            num_orderings=options.num_orderings,
            output=options.output,
        )
    except (ValueError, OSError) as error:
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
    for name, setting in list_settings():
        kind = type(setting.default)
        letter = "N" if kind is int else "X"
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, metavar=letter, help=setting.help.replace("%", "%%"))
    parser.add_argument(
        "--num-orderings", type=int, metavar="N", help="use the first N orderings of each block"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write here instead, and leave the run as it is"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
