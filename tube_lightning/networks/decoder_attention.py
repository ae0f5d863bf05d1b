"""Attention inside the decoders of transformers, as the caller of ``forward`` wants it.

One function is registered with transformers; a keyword of ``forward`` tells it what the tokens of
this pass read. So the networks are transformers' own, and no cache object is in the way.
"""

from typing import Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tube_lightning.networks.trunk import AttendInLayer, Projections

NAME = "tube_lightning"
KEYWORD = "reading"
"""The keyword of ``forward`` that holds an ``AttendInLayer``."""


def register() -> None:
    """Make the function known to transformers under its ``NAME``; again does no harm."""
    from transformers import AttentionInterface, AttentionMaskInterface  # takes seconds to import

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _no_mask)


def _attend(
    module: nn.Module,
    query: Float[Tensor, "rows heads size width"],
    key: Float[Tensor, "rows key_heads size width"],
    value: Float[Tensor, "rows key_heads size width"],
    attention_mask: None,
    *,
    reading: AttendInLayer,
    scaling: float | None = None,
    **_: Any,  # noqa: ANN401 (what other implementations want to know)
) -> tuple[Float[Tensor, "rows size heads width"], None]:
    """Hand the projections of one layer to what this pass reads with."""
    usual = query.shape[-1] ** -0.5
    if scaling is not None and scaling != usual:
        query = query * (scaling / usual)
    own = (
        rearrange(p, "rows heads size width -> rows size heads width") for p in (query, key, value)
    )
    attended = reading(int(module.layer_idx), Projections(*own))  # type: ignore[arg-type]
    if attended is None:
        raise ValueError(f"{KEYWORD}: expected what layer {module.layer_idx} attended to, got None")
    return attended, None


def _no_mask(*_: object, **__: object) -> None:
    """Make no mask: what a token sees is the reading's business."""
