"""What a run says besides its bar and its results: errors in a line, and nothing of Lightning's."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import InstantiationException

_LEVELS = {
    "lightning.pytorch": logging.WARNING,
    "lightning.fabric": logging.WARNING,
    "lightning.fabric.strategies.launchers.subprocess_script": logging.INFO,
}


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Tell what users can mend without the way there; HYDRA_FULL_ERROR=1 shows that as well."""
    try:
        yield
    except (ValueError, OSError, InstantiationException) as raised:
        error = raised.__cause__ if isinstance(raised, InstantiationException) else raised
        if os.environ.get("HYDRA_FULL_ERROR") or not isinstance(error, ValueError | OSError):
            raise
        print(f"error: {error}\n(HYDRA_FULL_ERROR=1 shows where)", file=sys.stderr)
        raise SystemExit(1) from None


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Leave the screen to the bar and the results: no advice, no list of absent hardware.

    That a process has died is still told.
    """
    levels = {logging.getLogger(name): level for name, level in _LEVELS.items()}
    before = {logger: logger.level for logger in levels}
    for logger, level in levels.items():
        logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The .srun. command is available")
            warnings.filterwarnings("ignore", "Total length of .* across ranks is zero")
            warnings.filterwarnings("ignore", "IProgress not found")  # bars of transformers
            warnings.filterwarnings("ignore", r".isinstance\(treespec, LeafSpec\). is deprecated")
            yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
