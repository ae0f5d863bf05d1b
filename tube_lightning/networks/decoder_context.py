"""What passes through a diffusion decoder read of each other."""

from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tube_lightning.networks.protocols import NoisyRows

Heads = Float[Tensor, "batch clean heads width"]


@dataclass(frozen=True)
class DecoderContext:
    """What rows may read of the clean tokens."""

    keys: tuple[Heads, ...]
    """Of each layer; none if there are no clean tokens."""
    values: tuple[Heads, ...]
    ends: Float[Tensor, "batch blocks dim"]
    """The output at the last position of each clean block; without blocks if nobody reads it."""

    @property
    def length(self) -> int:
        """Number of clean tokens of each sequence."""
        return self.keys[0].shape[1] if self.keys else 0


def trim_rows(rows: NoisyRows) -> NoisyRows:
    """Leave out positions at the end that no row has; say no more if all rows have the others."""
    if rows.exists is None:
        return rows
    width = int(rows.exists.any(dim=0).sum())
    cut: dict[str, Any] = {
        field: getattr(rows, field)[:, :width]
        for field in ("tokens", "revealed", "needed", "exists")
    }
    if cut["exists"].all():
        cut["exists"] = None
    return replace(rows, **cut)
