"""Look-ups in a table: log p(x | order) for any draw and regime, without a network."""

import math

import torch
from jaxtyping import Float, Float64, Int64, Shaped
from torch import Tensor

from tube_lightning.orderings import (
    NEVER,
    Role,
    all_sets,
    partition_steps,
    reveal_steps,
    set_codes,
)
from tube_lightning.placement import send
from tube_lightning.regimes import Steps


def checked_size(table: Float[Tensor, "*batch sets size"]) -> int:
    """Refuse what is not a table over the whole lattice."""
    size = table.shape[-1] if table.ndim >= 2 else 0
    if size < 1 or table.shape[-2] != 2**size:
        raise ValueError(
            "table: expected [..., 2**size, size] over all revealed sets, "
            f"got shape {tuple(table.shape)}"
        )
    return size


def scored_table(
    table: Float[Tensor, "*batch sets size"], roles: Int64[Tensor, " size"]
) -> Float[Tensor, "*batch scored_sets scored"]:
    """Reduce a table to the lattice of its scored positions.

    Given positions are revealed in every set that is kept, absent ones in none.
    """
    sets, roles = all_sets(checked_size(table)), roles.cpu()
    scored, given = roles == Role.SCORED, roles == Role.GIVEN
    kept = (sets[:, ~scored] == given[~scored]).all(dim=1)
    rows, columns = (send(torch.nonzero(mask)[:, 0], table.device) for mask in (kept, scored))
    return table[..., rows, :][..., columns]


def split_first(
    table: Float[Tensor, "*batch sets size"],
) -> tuple[Float64[Tensor, "*batch"], Float64[Tensor, "*batch half_sets others"]]:
    """Return log p(x_0) with nothing revealed, and the table of the others with x_0 revealed."""
    checked_size(table)
    first = table[..., 0, 0].double()
    bad = first.isnan() | (first == math.inf)
    if bad.any():
        raise ValueError(f"table: expected log-probabilities, got {first[bad][0].item()}")
    return first, table[..., 1::2, 1:].double()


def score_orderings(
    table: Float[Tensor, "*#batch sets size"],
    draws: Shaped[Tensor, "*#batch orderings size"],
    steps: Steps = None,
    roles: Int64[Tensor, "*#batch size"] | None = None,
) -> Float64[Tensor, "*#batch orderings"]:
    """Look up log p(x | order) of each draw (reveal times or orderings) under a regime, in nats.

    ``roles`` says which positions are scored (default: all).
    """
    checked_size(table)
    here = None if roles is None else roles.to(draws.device)[..., None, :]
    revealed_at = send(reveal_steps(draws, steps, here), table.device)
    return _terms(table, revealed_at).sum(dim=-1)


def score_partitions(
    table: Float[Tensor, "*#batch sets size"],
    times: Float[Tensor, "*#batch orderings size"],
    group_size: int,
) -> Float64[Tensor, "*#batch orderings"]:
    """Look up log p(x | ordered partition), averaged exactly over the orders inside each group.

    Unbiased for p(x) as a single ordering is, so it feeds every estimator unchanged.
    """
    size = checked_size(table)
    revealed_at, groups = (
        send(steps, table.device) for steps in partition_steps(times, group_size)
    )  # [..., orderings, orders, size], [..., orderings, size]
    orders, num_groups = revealed_at.shape[-2], -(-size // group_size)
    terms = _terms(table, revealed_at.flatten(-3, -2)).unflatten(-2, (-1, orders))
    in_group = torch.zeros(
        *terms.shape[:-1], num_groups, dtype=terms.dtype, device=terms.device
    ).scatter_add(-1, groups[..., None, :].expand_as(terms), terms)
    return (torch.logsumexp(in_group, dim=-2) - math.log(orders)).sum(dim=-1)


def _terms(
    table: Float[Tensor, "*#batch sets size"], revealed_at: Int64[Tensor, "*#batch draws size"]
) -> Float64[Tensor, "*#batch draws size"]:
    """Gather log p(x_d | set before d's step); zero where a position is not scored."""
    size = table.shape[-1]
    cells = set_codes(revealed_at) * size + torch.arange(size, device=revealed_at.device)
    flat = table.flatten(-2)
    lead = torch.broadcast_shapes(flat.shape[:-1], cells.shape[:-2])
    cells = cells.expand(*lead, *cells.shape[-2:])
    terms = flat.expand(*lead, -1).gather(-1, cells.flatten(-2)).view(cells.shape)
    scored = (revealed_at >= 0) & (revealed_at != NEVER)
    terms = torch.where(scored, terms, 0.0).double()
    if terms.isnan().any():
        where = tuple(torch.nonzero(terms.isnan())[0].tolist())
        raise ValueError(
            f"table: expected log-probabilities, got nan for draw and position {where}"
        )
    return terms
