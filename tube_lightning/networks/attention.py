"""Shared-prefix attention: each row sees itself and the clean tokens before its block.

Two implementations of one interface. A planner looks at the rows once and returns the function
that every layer calls, so that what depends on the rows alone is not repeated in each layer.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.trunk import Projections

_FLEX_BLOCK = 128
_STRETCH = 32
"""Blocks so near to each other share matmuls: a few masked keys cost less than many small calls."""

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
    """Plan matmuls stretch by stretch: the rows of neighbouring blocks against one prefix."""
    stretches = _cut_stretches(rows, clean_length)

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
        for sequence, here, end, unseen in stretches:
            prefix_keys = rearrange(clean_keys[sequence, :end], "prefix h w -> h w prefix")
            prefix_values = rearrange(clean_values[sequence, :end], "prefix h w -> h prefix w")
            prefix_scores = queries[:, here].flatten(1, 2) @ prefix_keys
            prefix_scores[..., end - unseen.shape[1] :].masked_fill_(unseen, -torch.inf)
            scores = torch.cat([prefix_scores, own_scores[:, here].flatten(1, 2)], dim=-1)
            on_prefix, on_own = scores.softmax(dim=-1).split([end, size], dim=-1)
            from_own = on_own.unflatten(1, (-1, size)) @ values[:, here]
            from_prefix = (on_prefix @ prefix_values).unflatten(1, (-1, size))
            torch.add(from_own, from_prefix, out=attended[:, here])
        return rearrange(attended, "heads rows size width -> rows size heads width")

    return attend


class _Stretch(NamedTuple):
    """Neighbouring rows of one sequence whose prefixes end within ``_STRETCH`` tokens."""

    sequence: int
    rows: slice
    end: int
    """The longest of their prefixes."""
    unseen: Bool[Tensor, "tokens tail"]
    """Which of the last tokens of that prefix are after a row's own."""


def _cut_stretches(rows: NoisyRows, clean_length: int) -> list[_Stretch]:
    """Cut the rows where the sequence changes, and every ``_STRETCH`` tokens of it."""
    if rows.start.max() > clean_length:
        raise ValueError(f"rows.start: expected at most {clean_length} clean tokens before a row")
    size, device = rows.tokens.shape[1], rows.start.device
    per_sequence = 1 + clean_length // _STRETCH
    numbers = rows.sequence * per_sequence + rows.start // _STRETCH
    distinct, counts = torch.unique_consecutive(numbers, return_counts=True)
    stretches, begin = [], 0
    for number, starts in zip(distinct.tolist(), rows.start.split(counts.tolist()), strict=True):
        shortest, longest = starts.aminmax()
        tail = torch.arange(shortest, longest, device=device)
        unseen = (tail >= starts[:, None]).repeat_interleave(size, dim=0)
        here = slice(begin, begin := begin + len(starts))
        stretches.append(_Stretch(number // per_sequence, here, int(longest), unseen))
    return stretches


def plan_flex(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan one ``flex_attention`` call over clean and own keys, without its fused kernel."""
    return _plan_flex(rows, clean_length, flex_attention)


def plan_compiled_flex(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan one ``flex_attention`` call over clean and own keys, compiled to one kernel."""
    return _plan_flex(rows, clean_length, _compile_flex())


@lru_cache(maxsize=1)
def _compile_flex() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)


def _plan_flex(rows: NoisyRows, clean_length: int, kernel: Callable[..., Tensor]) -> Attend:
    """Line up the clean keys of all sequences, then the rows' own, and mask by position.

    The number of rows is padded to a power of two, so that few shapes are ever compiled.
    """
    num_rows, size = rows.tokens.shape
    padding = (1 << (num_rows - 1).bit_length()) - num_rows
    device = rows.tokens.device

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean heads width"],
        clean_values: Float[Tensor, "batch clean heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        queries, keys, values = (F.pad(p, (0, 0) * 3 + (0, padding)) for p in own)
        attended = kernel(
            rearrange(queries, "rows size heads width -> 1 heads (rows size) width"),
            _line_up(clean_keys, keys),
            _line_up(clean_values, values),
            block_mask=mask(len(clean_keys)),
        )
        attended = rearrange(
            attended, "1 heads (rows size) width -> rows size heads width", size=size
        )
        return attended[:num_rows]

    @lru_cache(maxsize=1)  # all layers have the same number of sequences
    def mask(batch: int) -> BlockMask:
        sequence = F.pad(rows.sequence, (0, padding), value=-1)  # a padded row sees itself alone
        start = F.pad(rows.start, (0, padding))
        num_clean, period = batch * clean_length, max(clean_length, 1)
        first_clean = sequence.clamp(min=0) * clean_length
        first_own = num_clean + torch.arange(num_rows + padding, device=device) * size
        return BlockMask.from_kv_blocks(
            *_find_visited_blocks(
                (first_clean, first_clean + start),
                (first_own, first_own + size),
                size=size,
                num_keys=num_clean + len(sequence) * size,
            ),
            mask_mod=lambda batch, head, query, key: torch.where(
                key >= num_clean,  # one of the rows' own keys, else a clean one
                (key - num_clean) // size == query // size,
                (key // period == sequence[query // size]) & (key % period < start[query // size]),
            ),
            seq_lengths=(len(sequence) * size, num_clean + len(sequence) * size),
        )

    return attend


def _line_up(
    clean: Float[Tensor, "batch clean heads width"], own: Float[Tensor, "rows size heads width"]
) -> Float[Tensor, "1 heads keys width"]:
    """Line up the clean keys (or values) of all sequences and those of the rows."""
    both = torch.cat([clean.flatten(0, 1), own.flatten(0, 1)])
    return rearrange(both, "keys heads width -> 1 heads keys width")


def _find_visited_blocks(
    *intervals: tuple[Int64[Tensor, " rows"], Int64[Tensor, " rows"]], size: int, num_keys: int
) -> tuple[Int32[Tensor, "1 1 blocks"], Int32[Tensor, "1 1 blocks key_blocks"]]:
    """Find the blocks of keys that each block of queries may see, from intervals of keys a row.

    Returns their number and their indices, visited ones first. Memory grows with queries times
    blocks of keys, not with queries times keys.
    """
    begin = torch.arange(0, num_keys, _FLEX_BLOCK, device=intervals[0][0].device)
    seen = torch.stack(
        [
            (low[:, None] < begin + _FLEX_BLOCK) & (high[:, None] > begin) & (high > low)[:, None]
            for low, high in intervals
        ]
    ).any(dim=0)
    by_query = seen.repeat_interleave(size, dim=0)
    by_query = F.pad(by_query, (0, 0, 0, -len(by_query) % _FLEX_BLOCK))
    visited = by_query.unflatten(0, (-1, _FLEX_BLOCK)).any(dim=1)
    order = visited.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    return visited.sum(dim=1).int()[None, None], order.int()[None, None]
