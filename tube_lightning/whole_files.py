"""Files that are whole, or not there at all."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished"
"""How the names of half-written files end."""


def write_text(path: Path, text: str) -> None:
    """Write a text file: whole, or not at all."""
    with finished_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@contextmanager
def finished_file(path: Path) -> Iterator[Path]:
    """Lend a name to write to; when that ends well, the file stands under ``path``, whole.

    It is written beside, synced and renamed: whatever happens on the way, a full disk or a cut of
    power, leaves ``path`` as it was. Many processes may do so at once: names are their own, and the
    last of them wins. A process that is killed leaves its name behind: ``remove_unfinished``.
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
            _sync(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make_durable(path: Path) -> None:
    """Give the usual permissions to a file that mkstemp made private, and wait for the disk."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
    _sync(path)


def _sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    if path.is_dir() and os.name != "posix":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left half-written of a file. Nobody may be writing it."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        leftover.unlink(missing_ok=True)
