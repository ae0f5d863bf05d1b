"""Reveal steps: at which step of a regime each position of a draw is revealed.

A draw is either reveal times (float, one per position) or an ordering (int, entry t is the
position revealed t-th). Given positions have step -1, absent and cut ones ``NEVER``, so that
"revealed before" is a comparison of steps for every role.
"""

import itertools

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from tube_lightning.orderings.roles import Role
from tube_lightning.regimes import EqualChunks, FirstFirst, Steps

ALREADY = -1
NEVER = torch.iinfo(torch.int64).max


def _ranks(
    draws: Shaped[Tensor, "*batch size"], roles: Int64[Tensor, "*#batch size"]
) -> tuple[Int64[Tensor, "*batch size"], Int64[Tensor, "*#batch 1"]]:
    """Rank the scored positions of each draw from 0, and count them."""
    times = draws if draws.is_floating_point() else draws.argsort(dim=-1).double()
    times = times.masked_fill(roles == Role.GIVEN, -torch.inf)
    times = times.masked_fill(roles >= Role.ABSENT, torch.inf)
    num_given = (roles == Role.GIVEN).sum(dim=-1, keepdim=True)
    ranks = times.argsort(dim=-1, stable=True).argsort(dim=-1) - num_given
    return ranks, (roles == Role.SCORED).sum(dim=-1, keepdim=True)


def _place_unscored(
    revealed_at: Int64[Tensor, "*batch size"], roles: Int64[Tensor, "*#batch size"]
) -> Int64[Tensor, "*batch size"]:
    """Put given positions before every step, absent and cut ones after."""
    revealed_at = revealed_at.masked_fill(roles == Role.GIVEN, ALREADY)
    return revealed_at.masked_fill(roles >= Role.ABSENT, NEVER)


def _check_draws(
    draws: Shaped[Tensor, "*batch size"], roles: Int64[Tensor, "*#batch size"] | None
) -> Int64[Tensor, "*#batch size"]:
    """Default to all scored; refuse draws that are not of their declared kind."""
    if draws.dtype not in (torch.float64, torch.float32, torch.int64):
        raise ValueError(
            f"draws: expected reveal times (float) or orderings (int64), got {draws.dtype}"
        )
    if not draws.is_floating_point():
        positions = torch.arange(draws.shape[-1], device=draws.device)
        bad = (draws.sort(dim=-1).values != positions).any(dim=-1)
        if bad.any():
            first = draws[bad][0].tolist()
            raise ValueError(f"draws: expected permutations of 0..{len(first) - 1}, got {first}")
    else:
        outside = ~((draws >= 0) & (draws < 1))
        if outside.any():
            value = draws[outside][0].item()
            raise ValueError(f"draws: expected reveal times in [0, 1), got {value}")
    if roles is None:
        return torch.zeros_like(draws, dtype=torch.int64)
    unknown = (roles < min(Role)) | (roles > max(Role))
    if unknown.any():
        raise ValueError(f"roles: expected values of Role, got {roles[unknown][0].item()}")
    return roles


def reveal_steps(
    draws: Shaped[Tensor, "*batch size"],
    steps: Steps = None,
    roles: Int64[Tensor, "*#batch size"] | None = None,
) -> Int64[Tensor, "*batch size"]:
    """Return the step at which each position is revealed under a regime.

    One draw of reveal times serves every regime: its order is the any-order ARM's, ``floor(u T)``
    the step of the T-step MDM, and the chunks cut the same order. ``FirstFirst`` puts position 0
    before them all, if it is scored. ``roles`` broadcasts against the draws: give [blocks, 1, size]
    for draws of [blocks, orderings, size].

    >>> times = torch.tensor([0.7, 0.1, 0.4])
    >>> [reveal_steps(times, steps).tolist() for steps in (None, 2, EqualChunks(2))]
    [[2, 0, 1], [1, 0, 0], [1, 0, 0]]
    """
    roles = _check_draws(draws, roles)
    if isinstance(steps, FirstFirst):
        return _first_first(draws, steps, roles)
    if isinstance(steps, int):
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        if not draws.is_floating_point():
            raise ValueError(
                f"steps: {steps} random steps need reveal times (float), got an ordering; "
                "draw times or use EqualChunks"
            )
        drawn = (draws.double() * steps).long().clamp(max=steps - 1)
        return _place_unscored(drawn, roles)
    ranks, num_scored = _ranks(draws, roles)
    if isinstance(steps, EqualChunks):
        small, extra = num_scored // steps.number, num_scored % steps.number
        in_large = ranks < extra * (small + 1)
        ranks = torch.where(
            in_large,
            ranks // (small + 1),
            extra + (ranks - extra * (small + 1)) // small.clamp(min=1),
        )
    return _place_unscored(ranks, roles)


def _first_first(
    draws: Shaped[Tensor, "*batch size"], steps: FirstFirst, roles: Int64[Tensor, "*#batch size"]
) -> Int64[Tensor, "*batch size"]:
    """Reveal a scored position 0 alone, and the others as if it were given."""
    first = (torch.arange(draws.shape[-1], device=draws.device) == 0) & (roles == Role.SCORED)
    others = reveal_steps(draws, steps.rest, roles.masked_fill(first, Role.GIVEN))
    later = torch.where((others == ALREADY) | (others == NEVER), others, others + 1)
    return torch.where(first, 0, later)


def partition_steps(
    times: Float[Tensor, "*batch size"],
    group_size: int,
    roles: Int64[Tensor, "*#batch size"] | None = None,
) -> tuple[Int64[Tensor, "*batch orders size"], Int64[Tensor, "*batch size"]]:
    """Cut each random order into groups and list every order inside the groups.

    This is the Rao-Blackwell draw: a random ordered partition, to be averaged exactly over the
    ``group_size``! orders inside each group. Returns the reveal steps under each inner order and
    the group of each position (a last group may be smaller; its orders then repeat equally often).
    """
    if group_size < 1:
        raise ValueError(f"group_size: expected at least 1, got {group_size}")
    roles = _check_draws(times, roles)
    ranks, _ = _ranks(times, roles)
    group_size = min(group_size, times.shape[-1])
    groups, slots = ranks // group_size, ranks % group_size
    inner = torch.tensor(
        list(itertools.permutations(range(group_size))), device=times.device
    )  # [orders, slots]
    order = groups[..., None, :] * group_size + inner.T[slots].movedim(-1, -2)
    return _place_unscored(order, roles[..., None, :]), groups
