"""Which versions are installed, ours and those that results and speed depend on."""

import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import tube_lightning

PACKAGES = (
    *("tube-lightning", "torch", "triton", "lightning", "torchmetrics", "transformers"),
    *("datasets", "huggingface_hub", "hydra-core", "numpy", "pyarrow", "wandb"),
)


@dataclass(frozen=True)
class Versions:
    """Versions by name; None for what is not there."""

    python: str
    system: str
    commit: str | None
    """of a checkout of ours"""
    cuda: str | None
    """that torch was built for"""
    cudnn: int | None
    packages: dict[str, str | None]


def find_versions() -> Versions:
    """Ask the installed packages, and git where this is a checkout."""
    return Versions(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        commit=_find_commit(),
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        packages={name: _installed(name) for name in PACKAGES},
    )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _find_commit() -> str | None:
    folder = Path(tube_lightning.__file__).parent.parent
    if not (folder / ".git").exists():
        return None
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    try:
        told = subprocess.run(git, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None
