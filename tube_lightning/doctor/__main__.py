"""Look at this machine: python -m tube_lightning.doctor --help."""

import argparse
import json
import sys

from rich.console import Console

from tube_lightning.doctor.devices import choose_device
from tube_lightning.doctor.diagnosis import diagnose
from tube_lightning.doctor.screen import show
from tube_lightning.machine import use_granted_threads

_WIDTH = 100


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and look: 1 if the device is wrong, 2 if there is no such device."""
    options = _parser().parse_args(arguments)
    use_granted_threads()
    try:
        device = choose_device(options.device)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with Console(stderr=True).status("looking around") as status:
        diagnosis = diagnose(device, status.update, quick=options.quick)
    if options.json:
        print(json.dumps(diagnosis.to_json(), indent=1, allow_nan=False))
    else:
        show(Console(width=_WIDTH, highlight=False), diagnosis)
    return 0 if diagnosis.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tube_lightning.doctor",
        description="Say what this machine is, whether its device computes what a plain loop on "
        "the CPU does (embedded models, all regimes, both ways of attending), how fast it is, and "
        "what the paper's experiments would take on it. The exit code is 1 if the device's values "
        "are wrong. Nothing is downloaded or written, and no secret is shown.",
        epilog="Example, for an issue: python -m tube_lightning.doctor --json > doctor.json",
    )
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps (default: a GPU)")
    parser.add_argument("--json", action="store_true", help="print JSON, to paste into an issue")
    parser.add_argument("--quick", action="store_true", help="leave out what measures speed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
