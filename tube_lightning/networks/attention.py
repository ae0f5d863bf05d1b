"""Shared-prefix attention: each row sees itself and the clean tokens before its block.

Two implementations of one interface. A planner looks at the rows once and returns the function
that every layer calls, so that what depends on the rows alone is not repeated in each layer.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from tube_lightning.networks.dense_attention import attend_densely
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
    """Plan matmuls stretch by stretch: the rows of neighbouring blocks against one prefix.

    Sequences with rows of the same blocks go together, one stretch after the other. Differentiable.
    """
    if clean_length == 0:  # one block: rows see themselves alone
        return lambda own, *_: attend_densely(*own)
    groups = _group_sequences(rows, clean_length)

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean heads width"],
        clean_values: Float[Tensor, "batch clean heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        width = own.queries.shape[-1]
        pieces = []
        for group in groups:
            here = (
                rearrange(p[group.rows], "(s r) t h w -> s h r t w", s=group.num_sequences)
                for p in own
            )
            queries, keys, values = here  # [sequences, heads, rows, size, width]
            queries = queries * width**-0.5
            own_scores = queries @ keys.mT
            prefix_keys = rearrange(clean_keys[group.sequences], "s prefix h w -> s h w prefix")
            prefix_values = rearrange(clean_values[group.sequences], "s prefix h w -> s h prefix w")
            attended = [
                _attend_stretch(
                    stretch,
                    queries[:, :, stretch.rows],
                    prefix_keys[..., : stretch.end],
                    prefix_values[:, :, : stretch.end],
                    own_scores[:, :, stretch.rows],
                    values[:, :, stretch.rows],
                )
                for stretch in group.stretches
            ]
            pieces.append(rearrange(torch.cat(attended, dim=2), "s h r t w -> (s r) t h w"))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    return attend


class _Stretch(NamedTuple):
    """Neighbouring rows of a sequence whose prefixes end within ``_STRETCH`` tokens."""

    rows: slice
    end: int
    """The longest of their prefixes."""
    unseen: Bool[Tensor, "tokens tail"]
    """Which of the last tokens of that prefix are after a row's own."""


class _Group(NamedTuple):
    """Neighbouring sequences with rows of the same blocks."""

    first_sequence: int
    num_sequences: int
    rows: slice
    stretches: list[_Stretch]
    """Of each of the sequences."""

    @property
    def sequences(self) -> slice:
        return slice(self.first_sequence, self.first_sequence + self.num_sequences)


def _attend_stretch(
    stretch: _Stretch,
    queries: Float[Tensor, "sequences heads rows size width"],
    prefix_keys: Float[Tensor, "sequences heads width prefix"],
    prefix_values: Float[Tensor, "sequences heads prefix width"],
    own_scores: Float[Tensor, "sequences heads rows size size"],
    values: Float[Tensor, "sequences heads rows size width"],
) -> Float[Tensor, "sequences heads rows size width"]:
    """Join the scores of the prefix and of the rows' own keys, and average the values."""
    size = queries.shape[-2]
    prefix_scores = queries.flatten(2, 3) @ prefix_keys
    tail = stretch.unseen.shape[1]
    prefix_scores[..., stretch.end - tail :].masked_fill_(stretch.unseen, -torch.inf)
    scores = torch.cat([prefix_scores, own_scores.flatten(2, 3)], dim=-1)
    on_prefix, on_own = scores.softmax(dim=-1).split([stretch.end, size], dim=-1)
    from_prefix = (on_prefix @ prefix_values).unflatten(2, (-1, size))
    return torch.add(on_own.unflatten(2, (-1, size)) @ values, from_prefix)


def _group_sequences(rows: NoisyRows, clean_length: int) -> list[_Group]:
    """Cut the rows where the sequence changes; put equal neighbours together."""
    if max(run.start for run in rows.runs) > clean_length:
        raise ValueError(f"rows.start: expected at most {clean_length} clean tokens before a row")
    groups: list[_Group] = []
    begin, previous = 0, list[tuple[int, int]]()
    for sequence, runs in groupby(rows.runs, key=lambda run: run.sequence):
        blocks = [(run.start, run.num_rows) for run in runs]
        end = begin + sum(num_rows for _, num_rows in blocks)
        if blocks == previous and groups[-1].sequences.stop == sequence:
            same = groups.pop()
            same_rows = slice(same.rows.start, end)
            group = same._replace(num_sequences=same.num_sequences + 1, rows=same_rows)
        else:
            stretches = _cut_stretches(blocks, rows.start[begin:end], rows.tokens.shape[1])
            group = _Group(sequence, 1, slice(begin, end), stretches)
        groups.append(group)
        begin, previous = end, blocks
    return groups


def _cut_stretches(
    blocks: list[tuple[int, int]], starts: Int64[Tensor, " rows"], size: int
) -> list[_Stretch]:
    """Cut the rows of a sequence every ``_STRETCH`` tokens of it.

    ``blocks`` are (start, number of rows), and ``starts`` the same row by row, on the device.
    """
    stretches, begin = [], 0
    for _, near in groupby(blocks, key=lambda block: block[0] // _STRETCH):
        places, counts = zip(*near, strict=True)
        here = slice(begin, begin := begin + sum(counts))
        tail = torch.arange(min(places), max(places), device=starts.device)
        unseen = (tail >= starts[here, None]).repeat_interleave(size, dim=0)
        stretches.append(_Stretch(here, max(places), unseen))
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
