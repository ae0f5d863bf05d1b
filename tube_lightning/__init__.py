"""Bracket the likelihood of masked-diffusion and any-order language models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tube_lightning.pipeline import evaluate as evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (the module's attributes)
    """Import what is slow to import when it is asked for: ``evaluate`` needs Lightning."""
    if name == "evaluate":
        from tube_lightning.pipeline import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
