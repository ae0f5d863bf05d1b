"""States of our own training runs (``last.ckpt``), as readers of a model see them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tube_lightning.checkpoints.published import PREFIX
from tube_lightning.checkpoints.sources import MODEL_FOLDER
from tube_lightning.networks import DiTConfig

_CONFIG = "network_config"
_NETWORK = "network."
_WEIGHTS = {"ema": "state_dict", "raw": "current_model_state"}
"""Where Lightning's average of weights puts itself, and where the weights that it follows."""


def describe_network(config: DiTConfig) -> dict[str, Any]:
    """Return the entry of a state that says which network its tensors are of."""
    return {_CONFIG: asdict(config)}


def is_own_state(content: dict[str, Any]) -> bool:
    """Tell a state of our own runs from the training checkpoints of the original code bases."""
    return isinstance(content.get(_WEIGHTS["raw"]), dict)


def own_config(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of ``DiTConfig``."""
    config = content.get(_CONFIG)
    if not isinstance(config, dict):
        raise ValueError(
            f"{path}: expected a state of train.py that tells the sizes of its network, got one of "
            f"an earlier version: give {path.parent / MODEL_FOLDER}, or train on to write it again"
        )
    return dict(config)


def own_tensors(content: dict[str, Any], weights: str) -> dict[str, Any]:
    """Return the average ("ema") or the trained ("raw") weights, by their published names."""
    state: dict[str, Any] = content[_WEIGHTS[weights]]
    return {str(name).replace(_NETWORK, PREFIX, 1): tensor for name, tensor in state.items()}
