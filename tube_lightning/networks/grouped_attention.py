"""Shared-prefix attention by matmuls: what CPUs, Apple's GPUs and gradients take.

Also what the kernel is compared with.
"""

from itertools import groupby
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.shared_prefix import Attend
from tube_lightning.networks.trunk import Projections

_STRETCH = 32
"""Blocks so near to each other share matmuls: a few masked keys cost less than many small calls."""


def plan_grouped(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan matmuls stretch by stretch: the rows of neighbouring blocks against one prefix.

    Sequences with rows of the same blocks go together, one stretch after the other. Differentiable.
    """
    if clean_length == 0:  # one block: rows see themselves alone
        return lambda own, *_: attend_densely(*own)
    groups = _group_sequences(rows, clean_length)

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean kv_heads width"],
        clean_values: Float[Tensor, "batch clean kv_heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        width, kv_heads = own.queries.shape[-1], clean_keys.shape[2]
        pieces = []
        for group in groups:
            here = (
                # heads that share keys are more queries of one head
                rearrange(
                    p[group.rows],
                    "(s r) t (h g) w -> s h r (g t) w",
                    s=group.num_sequences,
                    h=kv_heads,
                )
                for p in own
            )
            queries, keys, values = here  # [sequences, kv_heads, rows, size, width]
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
            joined = torch.cat(attended, dim=2)
            pieces.append(rearrange(joined, "s h r (g t) w -> (s r) t (h g) w", t=keys.shape[-2]))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    return attend


class _Stretch(NamedTuple):
    """Neighbouring rows of a sequence whose prefixes end within ``_STRETCH`` tokens."""

    rows: slice
    end: int
    """The longest of their prefixes."""
    unseen: Bool[Tensor, "rows 1 tail"]
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
    queries: Float[Tensor, "sequences kv_heads rows queries width"],
    prefix_keys: Float[Tensor, "sequences kv_heads width prefix"],
    prefix_values: Float[Tensor, "sequences kv_heads prefix width"],
    own_scores: Float[Tensor, "sequences kv_heads rows queries size"],
    values: Float[Tensor, "sequences kv_heads rows size width"],
) -> Float[Tensor, "sequences kv_heads rows queries width"]:
    """Join the scores of the prefix and of the rows' own keys, and average the values."""
    by_row = (-1, queries.shape[-2])
    prefix_scores = queries.flatten(2, 3) @ prefix_keys
    tail = prefix_scores.unflatten(2, by_row)[..., stretch.end - stretch.unseen.shape[-1] :]
    tail.masked_fill_(stretch.unseen, -torch.inf)
    scores = torch.cat([prefix_scores, own_scores.flatten(2, 3)], dim=-1)
    on_prefix, on_own = scores.softmax(dim=-1).split([stretch.end, values.shape[-2]], dim=-1)
    from_prefix = (on_prefix @ prefix_values).unflatten(2, by_row)
    return torch.add(on_own.unflatten(2, by_row) @ values, from_prefix)


def _group_sequences(rows: NoisyRows, clean_length: int) -> list[_Group]:
    """Cut the rows where the sequence changes; put equal neighbours together."""
    rows.check_runs(clean_length)
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
            stretches = _cut_stretches(blocks, rows.start[begin:end])
            group = _Group(sequence, 1, slice(begin, end), stretches)
        groups.append(group)
        begin, previous = end, blocks
    return groups


def _cut_stretches(blocks: list[tuple[int, int]], starts: Int64[Tensor, " rows"]) -> list[_Stretch]:
    """Cut the rows of a sequence every ``_STRETCH`` tokens of it.

    ``blocks`` are (start, number of rows), and ``starts`` the same row by row, on the device.
    """
    stretches, begin = [], 0
    for _, near in groupby(blocks, key=lambda block: block[0] // _STRETCH):
        places, counts = zip(*near, strict=True)
        here = slice(begin, begin := begin + sum(counts))
        tail = torch.arange(min(places), max(places), device=starts.device)
        unseen = tail >= starts[here, None, None]
        stretches.append(_Stretch(here, max(places), unseen))
    return stretches
