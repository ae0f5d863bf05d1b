"""Exact likelihoods, ELBOs and population bounds of a block, from its table."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tube_lightning.lattice.recursions import log_chunk_paths, log_group_paths
from tube_lightning.lattice.table import checked_size, split_first
from tube_lightning.orderings import all_sets
from tube_lightning.placement import send
from tube_lightning.regimes import EqualChunks, FirstFirst, Regime, Steps

MAX_ELBO_STEPS = 1_000_000
_MAX_ELEMENTS = 1 << 21
"""Leading axes are taken in slices of about this many float64 numbers (16 MiB) of state."""


def exact_log_likelihoods(
    table: Float[Tensor, "*batch sets size"], regimes: Sequence[Steps]
) -> Float64[Tensor, "*batch regimes"]:
    """Return log p(x) of a block under several regimes, exactly, in nats.

    All T-step regimes share one recursion, so the last axis costs little. Behind ``FirstFirst`` the
    others are summed with position 0 revealed.
    """
    rests = [steps.rest for steps in regimes if isinstance(steps, FirstFirst)]
    if rests and len(rests) < len(regimes):
        raise ValueError(f"regimes: expected all of them FirstFirst or none, got {list(regimes)}")
    if rests:
        first, others = split_first(table)
        behind = exact_log_likelihoods(others, rests) if others.shape[-1] else 0.0
        return first[..., None].expand(*first.shape, len(rests)) + behind
    table, size = _prepare_table(table, regimes)
    max_groups = min(size, max((r for r in regimes if isinstance(r, int)), default=0))
    log_groups = table.new_empty(0)
    if max_groups:
        paths = partial(log_group_paths, max_groups=max_groups)
        log_groups = _by_slices(paths, table, 3**size)

    def one(steps: Steps) -> Float64[Tensor, "*batch"]:
        if isinstance(steps, int):
            log_ways = [
                math.log(math.comb(steps, k)) if k <= steps else -math.inf
                for k in range(1, max_groups + 1)
            ]
            ways = send(torch.tensor(log_ways, dtype=torch.float64), table.device)
            log_paths = torch.logsumexp(log_groups + ways, dim=-1)
            return log_paths - size * math.log(steps)
        sizes = steps.sizes(size) if isinstance(steps, EqualChunks) else (1,) * size
        log_orders = math.lgamma(size + 1) - sum(math.lgamma(s + 1) for s in sizes)
        return _by_slices(partial(log_chunk_paths, sizes=sizes), table, 2**size * size) - log_orders

    return torch.stack([one(steps) for steps in regimes], dim=-1)


def exact_log_likelihood(
    table: Float[Tensor, "*batch sets size"], steps: Steps = None
) -> Float64[Tensor, "*batch"]:
    """Return log p(x) of a block, exactly, in nats.

    ``steps`` is the regime: None for the any-order ARM, T for the T-step MDM with iid uniform
    steps, ``EqualChunks(T)`` for T chunks of equal size. Blocks of up to 16 positions (any-order,
    chunks) or 14 (T-step); T may be any size. Positions that are not scored have probability one
    in a table of ``tube_lightning.scoring`` and change nothing, except that they would fill a place
    in ``EqualChunks``: take ``scored_table`` first.

    Reference: TUBE paper, eq. (ao_arm) and (mdm).

    >>> table = torch.tensor([[0.5, 0.5], [0.0, 0.8], [0.4, 0.0], [0.0, 0.0]]).log()
    >>> round(exact_log_likelihood(table).exp().item(), 6)  # (0.5 * 0.8 + 0.5 * 0.4) / 2
    0.3
    """
    return exact_log_likelihoods(table, [steps])[..., 0]


def exact_elbo(
    table: Float[Tensor, "*batch sets size"], steps: Steps = None
) -> Float64[Tensor, "*batch"]:
    """Return E[log p(x | order)] of a block, exactly, in nats.

    ELBO = sum_S sum_{d not in S} P(S is revealed just before d's step) log p(x_d | x_S)

    At most a million steps; beyond, the any-order value (None) is the limit.

    Reference: TUBE paper, eq. (ao_arm_elbo) and (mdm_elbo).
    """
    if isinstance(steps, FirstFirst):
        first, others = split_first(table)
        return first + (exact_elbo(others, steps.rest) if others.shape[-1] else 0.0)
    table, size = _prepare_table(table, [steps])
    weights = torch.tensor(_edge_weights(size, steps), dtype=torch.float64)
    sets = all_sets(size)
    weight = send(torch.where(sets, 0.0, weights[sets.sum(dim=1)][:, None]), table.device)
    return torch.where(weight > 0, weight * table, 0.0).sum(dim=(-2, -1))


def exact_cubo(
    table: Float[Tensor, "*batch sets size"], beta: float = 2.0, steps: Steps = None
) -> Float64[Tensor, "*batch"]:
    """Return the population CUBO_beta = (1/beta) log E[p(x | order)^beta], exactly, in nats.

    Reference: TUBE paper, eq. (app_cubo_pop).
    """
    if not 1 <= beta < math.inf:
        raise ValueError(f"beta: expected a finite exponent of at least 1, got {beta}")
    return exact_log_likelihood(beta * table.double(), steps) / beta


def _prepare_table(
    table: Float[Tensor, "*batch sets size"], regimes: Sequence[Steps]
) -> tuple[Float64[Tensor, "*batch sets size"], int]:
    """Return the table in float64 with its ignored entries zeroed; refuse NaN, +inf and sizes."""
    size = checked_size(table)
    if not regimes:
        raise ValueError("regimes: expected at least one, got none")
    for steps in regimes:
        limit = Regime(steps).largest_exact_block
        if size > limit:
            raise ValueError(
                f"table: expected at most {limit} positions for steps={steps}, got {size}; "
                "use sampled orderings for larger blocks"
            )
        if isinstance(steps, int) and steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
    table = table.double().masked_fill(send(all_sets(size), table.device), 0.0)
    bad = table.isnan() | (table == math.inf)
    if bad.any():
        where = tuple(torch.nonzero(bad)[0].tolist())
        raise ValueError(
            f"table: expected log-probabilities, got {table[where].item()} at index {where}"
        )
    return table, size


def _by_slices(
    compute: Callable[[Tensor], Tensor],
    table: Float64[Tensor, "*batch sets size"],
    elements: int,
) -> Float64[Tensor, "..."]:
    """Apply ``compute`` to slices of the leading axes that keep its temporaries bounded."""
    lead = table.shape[:-2]
    tables = table.reshape(-1, *table.shape[-2:])
    parts = [compute(part) for part in tables.split(max(1, _MAX_ELEMENTS // elements))]
    values = torch.cat(parts)
    return values.view(lead + values.shape[1:])


def _edge_weights(size: int, steps: Steps) -> list[float]:
    """Return P(S is the set before d's step) for one set S of each cardinality and d not in S."""
    if isinstance(steps, int):
        if steps > MAX_ELBO_STEPS:
            raise ValueError(f"steps: expected at most {MAX_ELBO_STEPS} or None, got {steps}")
        before = torch.arange(steps, dtype=torch.float64) / steps  # P(revealed before step t)
        powers = ((before**k) * (1 - before) ** (size - 1 - k) for k in range(size))
        return [*(power.mean().item() for power in powers), 0.0]
    weights, revealed = [0.0] * (size + 1), 0
    for chunk in steps.sizes(size) if isinstance(steps, EqualChunks) else (1,) * size:
        weights[revealed] = chunk / (size - revealed) / math.comb(size, revealed)
        revealed += chunk
    return weights
