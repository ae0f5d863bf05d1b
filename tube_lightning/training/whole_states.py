"""States of a training run on disk: whole, or the one before."""

import io
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from tube_lightning.cluster import cluster_plugins
from tube_lightning.whole_files import finished_file


class WholeStates(TorchCheckpointIO):
    """Save a state beside the one before, and give it its name when the disk has it.

    Lightning's own way copies into place: a disk that fills up leaves half a state and no other.
    """

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | Path,
        storage_options: Any = None,  # noqa: ANN401 (Lightning's signature)
    ) -> None:
        """Write a state, or leave the one before and say so."""
        del storage_options
        path, buffer = Path(path), io.BytesIO()
        torch.save(checkpoint, buffer)
        try:
            with finished_file(path) as unfinished:
                unfinished.write_bytes(buffer.getbuffer())
        except OSError as error:
            kept = "the state before it is kept" if path.exists() else "there was none before it"
            raise OSError(f"{error}; {kept}; the same command continues") from error


def training_plugins() -> list[ClusterEnvironment | WholeStates]:
    """Return what ``train.py`` changes in Lightning."""
    return [*cluster_plugins(), WholeStates()]
