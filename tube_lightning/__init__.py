"""Bracket the likelihood of masked-diffusion and any-order language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tube_lightning.checkpoints import load_arm as load_arm
    from tube_lightning.checkpoints import load_block_model as load_block_model
    from tube_lightning.pipeline import evaluate as evaluate
    from tube_lightning.scoring import conditional_table as conditional_table

__all__ = ["conditional_table", "evaluate", "load_arm", "load_block_model"]

_HOMES = {
    "conditional_table": "tube_lightning.scoring",
    "evaluate": "tube_lightning.pipeline",
    "load_arm": "tube_lightning.checkpoints",
    "load_block_model": "tube_lightning.checkpoints",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (the module's attributes)
    """Import what is slow to import when it is asked for: torch, and Lightning for ``evaluate``."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what is imported later as well."""
    return sorted({*globals(), *_HOMES})
