"""Where configurations and job scripts are: beside the package in a clone, inside it in a wheel."""

from pathlib import Path

import tube_lightning


def folder_of(name: str) -> Path:
    """Return a folder that a clone has at its top: configs, slurm."""
    package = Path(tube_lightning.__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
