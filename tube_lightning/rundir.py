"""Run directories: one configuration each, so that a rerun continues and never mixes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG_FILE = "config.json"


def claim_directory(directory: str | Path, config: Mapping[str, Any]) -> Path:
    """Make ``directory`` the home of one configuration, or refuse with the keys that differ.

    The configuration is written atomically the first time; later runs must bring the same.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
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
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(config, indent=2) + "\n")
        os.replace(unfinished, path)
    return directory


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
