"""The two recursions over the subset lattice, in log space.

- chunks of fixed sizes:   F(S) = sum_{R in S, |R| fixed} F(R) prod_{d in S-R} p(d | R)
- groups of any size:    G_k(S) = sum_{R in S}      G_{k-1}(R) prod_{d in S-R} p(d | R)

Both climb the lattice by cardinality. Inside, tables are the innermost axis, so that every gather
copies whole rows.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from tube_lightning.orderings import all_sets
from tube_lightning.placement import send


@dataclass(frozen=True)
class _Edges:
    """One layer of the lattice: its sets, the subsets below them, and what each step reveals."""

    sets: Int64[Tensor, " sets"]
    subsets: Int64[Tensor, "sets edges"]
    reveals: Int64[Tensor, "sets edges *cells"]


def _members(size: int, count: int) -> Int64[Tensor, "sets count"]:
    """List the positions of each set of ``count`` positions, sets in bit-mask order."""
    sets = all_sets(size)
    return torch.nonzero(sets[sets.sum(dim=1) == count])[:, 1].view(-1, count)


def _subsets(
    members: Int64[Tensor, "sets count"], patterns: Bool[Tensor, "edges count"]
) -> Int64[Tensor, "sets edges"]:
    """Encode the subsets of each set of ``members`` that the ``patterns`` pick."""
    return (1 << members) @ patterns.long().T


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept may be needed for gradients later
def _chunk_edges(size: int, before: int, after: int, device: torch.device) -> _Edges:
    """List the sets of ``after`` positions and, from each of their subsets of ``before``, a step.

    A step is the list of cells of the flattened table whose sum is log prod_{d in S-R} p(d | R).
    """
    members = _members(size, after)
    patterns = all_sets(after)
    patterns = patterns[patterns.sum(dim=1) == before]
    subsets = _subsets(members, patterns)
    added = torch.nonzero(~patterns)[:, 1].view(-1, after - before)  # [edges, added]
    cells = subsets[..., None] * size + members[:, added]
    sets = (1 << members).sum(dim=1)
    return _Edges(send(sets, device), send(subsets, device), send(cells, device))


def log_chunk_paths(
    table: Float64[Tensor, "tables sets size"], sizes: tuple[int, ...]
) -> Float64[Tensor, " tables"]:
    """Return log of the sum over all ways to reveal the block in chunks of ``sizes``."""
    num_tables, num_sets, size = table.shape
    cells = table.flatten(1).T.contiguous()
    log_paths = cells.new_full((num_sets, num_tables), -math.inf)
    log_paths[0] = 0.0
    for after, chunk in zip(itertools.accumulate(sizes), sizes, strict=True):
        edges = _chunk_edges(size, after - chunk, after, table.device)
        log_steps = cells[edges.reveals].sum(dim=2)  # [sets, edges, tables]
        log_paths[edges.sets] = torch.logsumexp(log_paths[edges.subsets] + log_steps, dim=1)
    return log_paths[-1]


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept may be needed for gradients later
def _group_edges(size: int, device: torch.device) -> tuple[_Edges, ...]:
    """List the sets of each cardinality and, from their proper subsets, largest first, a step.

    A step is a row of ``_group_steps``: those from R start at ``start[R]`` and are numbered by the
    bit mask of what they add, over the positions outside R.
    """
    sets = all_sets(size)
    by_cardinality = torch.argsort(sets.sum(dim=1), stable=True)
    num_steps = 1 << (size - sets.sum(dim=1))
    start = torch.empty_like(num_steps)
    start[by_cardinality] = num_steps[by_cardinality].cumsum(0) - num_steps[by_cardinality]
    bit_outside = 1 << ((~sets).long().cumsum(dim=1) - 1).clamp(min=0)  # [sets, size]
    layers = []
    for count in range(1, size + 1):
        members = _members(size, count)
        patterns = all_sets(count)[:-1]
        patterns = patterns[patterns.sum(dim=1).argsort(descending=True, stable=True)]
        subsets = _subsets(members, patterns)
        steps = start[subsets]
        for slot in range(count):
            bit = bit_outside[subsets, members[:, slot : slot + 1]]
            steps += torch.where(patterns[:, slot], 0, bit)
        codes = (1 << members).sum(dim=1)
        layers.append(_Edges(send(codes, device), send(subsets, device), send(steps, device)))
    return tuple(layers)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept may be needed for gradients later
def _sets_and_rest(
    size: int, count: int, device: torch.device
) -> tuple[Int64[Tensor, " sets"], Int64[Tensor, "sets outside"]]:
    """List the sets of ``count`` positions, and the positions outside of each."""
    sets = all_sets(size)
    codes = torch.nonzero(sets.sum(dim=1) == count)[:, 0]
    outside = torch.nonzero(~sets[codes])[:, 1].view(len(codes), size - count)
    return send(codes, device), send(outside, device)


def _group_steps(cells: Float64[Tensor, "sets size tables"]) -> Float64[Tensor, "steps tables"]:
    """Return log prod_{d in A} p(d | R) for all disjoint R and A, by cardinality of R."""
    size = cells.shape[1]
    parts = []
    for count in range(size + 1):
        codes, outside = _sets_and_rest(size, count, cells.device)
        sums = cells.new_zeros(len(codes), 1, cells.shape[2])
        for slot in range(size - count):
            term = cells[codes, outside[:, slot]][:, None]
            sums = torch.cat([sums, sums + term], dim=1)
        parts.append(sums.flatten(0, 1))
    return torch.cat(parts)


def log_group_paths(
    table: Float64[Tensor, "tables sets size"], max_groups: int
) -> Float64[Tensor, "tables groups"]:
    """Return log of the sum over all ways to reveal the block in k nonempty groups, k from 1."""
    num_tables, num_sets, size = table.shape
    log_steps = _group_steps(table.movedim(0, -1).contiguous())
    log_paths = table.new_full((max_groups + 1, num_sets, num_tables), -math.inf)  # axis 0 is k
    log_paths[0, 0] = 0.0
    for count, edges in enumerate(_group_edges(size, table.device), start=1):
        steps = log_steps[edges.reveals]  # [sets, edges, tables]
        for groups in range(1, min(count, max_groups) + 1):
            # k - 1 groups reach only the subsets of at least k - 1 positions, which come first
            reached = sum(math.comb(count, left) for left in range(groups - 1, count))
            terms = log_paths[groups - 1, edges.subsets[:, :reached]] + steps[:, :reached]
            log_paths[groups, edges.sets] = torch.logsumexp(terms, dim=1)
    return log_paths[1:, -1].T
