"""Run directories: one configuration each, so that a rerun continues and never mixes."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CONFIG_FILE = "config.json"
UNFINISHED = ".unfinished"


def claim_directory(directory: str | Path, config: Mapping[str, Any]) -> Path:
    """Make ``directory`` the home of one configuration, or refuse with the keys that differ.

    The configuration is written atomically the first time; later runs must bring the same.
    """
    directory = Path(directory)
    path = directory / CONFIG_FILE
    ours = flat_settings(json.loads(json.dumps(config)))
    if path.exists():
        theirs = flat_settings(json.loads(path.read_text()))
        differing = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
        if differing:
            lines = [f"{k}: there {theirs.get(k)!r}, now {ours.get(k)!r}" for k in differing]
            raise ValueError(
                f"output_dir: {directory} belongs to a run with other settings; choose another "
                "or remove it.\n  " + "\n  ".join(lines)
            )
    else:
        with finished_file(path) as unfinished:
            unfinished.write_text(json.dumps(config, indent=2) + "\n")
    return directory


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
            _settle(unfinished)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def _settle(path: Path) -> None:
    """Give the usual permissions to a file that mkstemp made private, and wait for the disk."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flat_settings(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name every leaf of nested settings by its path.

    >>> flat_settings({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
