"""Exact scores of blocks that score few of their positions: an answer behind a long prompt.

The lattice goes over the scored positions alone, whatever the size of the block.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.evaluator.plan import Plan
from tube_lightning.lattice import exact_elbo, exact_log_likelihoods, score_orderings
from tube_lightning.memory import TokenBudget
from tube_lightning.networks import BlockModel
from tube_lightning.orderings import RevealedSets, Role, all_sets
from tube_lightning.placement import exact_device, send
from tube_lightning.scores import RegimeScores
from tube_lightning.scoring import conditional_rows

_MAX_ROWS = 1 << 24
"""Most positions of rows at a time (128 MiB of log-probabilities)."""


def split_fixed_order(
    scores: Float64[Tensor, "batch blocks orderings"], **values: Tensor | None
) -> RegimeScores:
    """Split off the fixed order, which is the last."""
    return RegimeScores(scores[..., :-1], left_to_right=scores[..., -1], **values)


def score_short(
    model: BlockModel[Any],
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    times: Float64[Tensor, "batch blocks orderings size"],
    plan: Plan,
    token_budget: TokenBudget | None = None,
) -> dict[str, RegimeScores]:
    """Score blocks exactly in all regimes; those with equally many scored positions together.

    So a block's values do not depend on which others are in the batch. Roles and times are the
    host's.
    """
    flat, drawn, home = roles.flatten(0, 1), times.flatten(0, 1), exact_device(tokens.device)
    zeros = torch.zeros(drawn.shape[:2], dtype=torch.float64, device=home)
    scores = {regime: zeros.clone() for regime in plan.regimes}
    exact = {regime: zeros[:, :2].clone() for regime in plan.exact_regimes}
    for blocks, columns, kept in _same_counts(flat, plan.first_first):
        table = scored_lattice(model, tokens, roles, blocks, columns, token_budget)
        here = drawn[blocks].gather(-1, columns[:, None].expand(-1, drawn.shape[1], -1))
        blocks = send(blocks, home)
        for regime in plan.regimes:
            scores[regime][blocks] = score_orderings(table, here, regime.steps, kept)
        likelihoods = exact_log_likelihoods(table, [regime.steps for regime in exact])
        for number, regime in enumerate(exact):
            elbo = exact_elbo(table, regime.steps)
            exact[regime][blocks] = torch.stack([likelihoods[:, number], elbo], dim=-1)
    values = {
        regime: {
            name: pair[:, i].view(roles.shape[:2]) for i, name in enumerate(("exact", "exact_elbo"))
        }
        for regime, pair in exact.items()
    }
    return {
        regime.name: split_fixed_order(found.view(times.shape[:3]), **values.get(regime, {}))
        for regime, found in scores.items()
    }


def scored_lattice(
    model: BlockModel[Any],
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    blocks: Int64[Tensor, " some"],
    columns: Int64[Tensor, "some kept"],
    token_budget: TokenBudget | None = None,
) -> Float64[Tensor, "some sets kept"]:
    """Return the table of some blocks over all sets of a few of their positions.

    ``blocks`` counts those of all sequences; all positions but ``columns`` must not be scored. The
    table is what ``tube_lightning.lattice`` takes.
    """
    here = roles.flatten(0, 1)[blocks]  # [some, size]
    kept = columns.shape[1]
    sets = all_sets(kept)
    together = max(1, _MAX_ROWS // here.shape[1])
    tables = []
    for number, block in enumerate(blocks):
        given = here[number] == Role.GIVEN
        pieces = []
        for some in sets.split(together):
            revealed = given.repeat(len(some), 1)
            revealed[:, columns[number]] |= some
            needed = ~revealed & (here[number] == Role.SCORED)
            rows = RevealedSets(revealed, needed, block.expand(len(some)), index=())
            table = conditional_rows(model, tokens, rows, roles=roles, token_budget=token_budget)
            pieces.append(table[:, send(columns[number], table.device)])
        tables.append(torch.cat(pieces))
    return torch.stack(tables)


def _same_counts(
    roles: Int64[Tensor, "blocks size"], keep_first: bool
) -> Iterator[
    tuple[Int64[Tensor, " some"], Int64[Tensor, "some kept"], Int64[Tensor, "some kept"]]
]:
    """Yield blocks with equally many kept positions, those positions, and their roles.

    Scored positions are kept, and position 0 whatever it is where orderings begin with it.
    """
    kept = roles == Role.SCORED
    some_scored = kept.any(dim=1)
    if keep_first:
        kept = kept.clone()
        kept[:, 0] = some_scored
    counts = kept.sum(dim=1)
    for count in counts[some_scored].unique().tolist():
        blocks = torch.nonzero(some_scored & (counts == count))[:, 0]
        columns = torch.nonzero(kept[blocks])[:, 1].view(-1, count)
        yield blocks, columns, roles[blocks].gather(1, columns)
