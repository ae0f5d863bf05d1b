"""Shared-prefix attention: each row sees itself and the clean tokens before its block.

Two implementations of one interface. A planner looks at the rows once and returns the function
that every layer calls, so that what depends on the rows alone is not repeated in each layer.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tube_lightning.models.protocols import NoisyRows
from tube_lightning.models.trunk import Projections

Attend = Callable[[Projections, Tensor, Tensor], Tensor]
"""(projections of the rows, clean keys, clean values) -> what each row's tokens attended to.

Rows are [rows, size, heads, width]; clean keys and values [batch, clean, heads, width].
"""
PlanAttention = Callable[[NoisyRows, int], Attend]
"""(rows, number of clean tokens in a sequence) -> the function that every layer calls."""


def default_attention(device: torch.device) -> PlanAttention:
    """Choose the implementation that is fast on a device."""
    return plan_compiled_flex if device.type == "cuda" else plan_grouped


def plan_grouped(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan matmuls block by block: all rows of a block against one copy of its prefix."""
    groups = _groups(rows, clean_length)

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean heads width"],
        clean_values: Float[Tensor, "batch clean heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        size, width = own.queries.shape[1], own.queries.shape[-1]
        layout = "rows size heads width -> heads rows size width"
        queries = rearrange(own.queries, layout) * width**-0.5
        keys, values = rearrange(own.keys, layout), rearrange(own.values, layout)
        own_scores = queries @ keys.mT  # [heads, rows, size, size]
        attended = torch.empty_like(queries)
        for sequence, start, here in groups:
            prefix_keys = rearrange(clean_keys[sequence, :start], "prefix h w -> h w prefix")
            prefix_values = rearrange(clean_values[sequence, :start], "prefix h w -> h prefix w")
            prefix_scores = queries[:, here].flatten(1, 2) @ prefix_keys
            scores = torch.cat([prefix_scores, own_scores[:, here].flatten(1, 2)], dim=-1)
            on_prefix, on_own = scores.softmax(dim=-1).split([start, size], dim=-1)
            from_own = on_own.unflatten(1, (-1, size)) @ values[:, here]
            from_prefix = (on_prefix @ prefix_values).unflatten(1, (-1, size))
            torch.add(from_own, from_prefix, out=attended[:, here])
        return rearrange(attended, "heads rows size width -> rows size heads width")

    return attend


def _groups(rows: NoisyRows, clean_length: int) -> list[tuple[int, int, slice]]:
    """List the runs of rows that share a sequence and a prefix."""
    names = torch.stack([rows.sequence, rows.start], dim=1)
    distinct, counts = torch.unique_consecutive(names, dim=0, return_counts=True)
    if distinct[:, 1].max() > clean_length:
        raise ValueError(f"rows.start: expected at most {clean_length} clean tokens before a row")
    ends = counts.cumsum(0)
    return [
        (sequence, start, slice(end - count, end))
        for (sequence, start), end, count in zip(
            distinct.tolist(), ends.tolist(), counts.tolist(), strict=True
        )
    ]


def plan_flex(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan one ``flex_attention`` call over clean and own keys, without its fused kernel."""
    return _plan_flex(rows, clean_length, flex_attention)


def plan_compiled_flex(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan one ``flex_attention`` call over clean and own keys, compiled to one kernel."""
    return _plan_flex(rows, clean_length, _compiled_flex())


@lru_cache(maxsize=1)
def _compiled_flex() -> Callable[..., Tensor]:
    return torch.compile(flex_attention, dynamic=True)


def _plan_flex(rows: NoisyRows, clean_length: int, kernel: Callable[..., Tensor]) -> Attend:
    num_rows, size = rows.tokens.shape
    sequences, row_sequence = torch.unique(rows.sequence, return_inverse=True)
    num_clean = len(sequences) * clean_length

    period = max(clean_length, 1)
    mask = create_block_mask(
        lambda batch, head, query, key: torch.where(
            key >= num_clean,  # an own key, else a clean one
            (key - num_clean) // size == query // size,
            (key // period == row_sequence[query // size])
            & (key % period < rows.start[query // size]),
        ),
        B=None,
        H=None,
        Q_LEN=num_rows * size,
        KV_LEN=num_clean + num_rows * size,
        device=rows.tokens.device,
    )

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean heads width"],
        clean_values: Float[Tensor, "batch clean heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        def with_clean(clean: Tensor, own: Tensor) -> Tensor:
            both = torch.cat([clean[sequences].flatten(0, 1), own.flatten(0, 1)])
            return rearrange(both, "tokens heads width -> 1 heads tokens width")

        attended = kernel(
            rearrange(own.queries, "rows size heads width -> 1 heads (rows size) width"),
            with_clean(clean_keys, own.keys),
            with_clean(clean_values, own.values),
            block_mask=mask,
        )
        return rearrange(attended, "1 heads (rows size) width -> rows size heads width", size=size)

    return attend
