"""Files that are whole, or not there at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tube_lightning.rundir.names import UNFINISHED


def write_text(path: Path, text: str) -> None:
    """Write a text file: whole, or not at all."""
    with finished_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@contextmanager
def finished_file(path: Path) -> Iterator[Path]:
    """Lend a name to write to; when that ends well, the file stands under ``path``, whole.

    Many processes may do so at once: names are their own, and the last of them wins. A process that
    is killed leaves its name behind, and ``path`` as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=UNFINISHED, dir=path.parent)
        os.close(handle)
        unfinished = Path(name)
        try:
            yield unfinished
            _make_durable(unfinished)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make_durable(path: Path) -> None:
    """Give the usual permissions to a file that mkstemp made private, and wait for the disk."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
    with path.open("rb") as file:
        os.fsync(file.fileno())
