"""One batch through the networks: tokens -> revealed sets -> conditional table -> scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float64, Int32, Int64
from torch import Tensor

from tube_lightning.evaluator.continuous_time import HiddenDraws, hidden_draws
from tube_lightning.evaluator.plan import Plan
from tube_lightning.evaluator.short_answers import score_short, split_fixed_order
from tube_lightning.lattice import (
    exact_elbo,
    exact_log_likelihoods,
    score_orderings,
    scored_table,
)
from tube_lightning.memory import TokenBudget
from tube_lightning.networks import AutoregressiveModel, BlockModel
from tube_lightning.orderings import (
    RevealedSets,
    Role,
    distinct_sets,
    encode_sets,
    left_to_right_times,
    reveal_steps,
    unique_sets,
)
from tube_lightning.placement import exact_device, send
from tube_lightning.records import map_tensors
from tube_lightning.regimes import ANY_ORDER, EqualChunks, Regime
from tube_lightning.scores import NOWHERE, BlockScores, RegimeScores
from tube_lightning.scoring import (
    at_scored,
    block_log_probs,
    block_sums,
    conditional_rows,
    conditional_table,
)

_MAX_SETS = 1 << 28
"""Most positions of the sets before all steps of all orderings at a time (256 MiB)."""
_MAX_TABLE = 1 << 24
"""Most entries of a full table at a time (128 MiB): sequences are taken in slices of it."""


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some sequences with all their draws, which the host plans by."""

    sequences: list[int]
    tokens: Int64[Tensor, "batch length"]
    """on the device of the model; all else is on the host"""
    roles: Int64[Tensor, "batch blocks size"]
    times: Float64[Tensor, "batch blocks orderings size"]
    """The sampled orderings, and last the fixed one from left to right."""
    token_budget: TokenBudget | None


def score_batch(
    model: BlockModel[Any],
    arms: Mapping[str, AutoregressiveModel],
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    sequences: Sequence[int],
    plan: Plan,
    token_bytes: Int32[Tensor, "batch length"] | None = None,
    documents: Int32[Tensor, "batch length"] | None = None,
    token_budget: TokenBudget | None = None,
) -> BlockScores:
    """Score all blocks of some sequences under every regime of the plan.

    ``arms`` are the autoregressive surrogates by name (arm, arm_ft), ``token_bytes`` the bytes of
    the original text that belong to each token and ``documents`` the numbers of their documents,
    where they are known. Values depend on the seed, the sequences' ids and their tokens; which
    others are in the batch does not matter, nor how many tokens go through a network at once. They
    stay where float64 lives on the tokens' device.
    """
    start = time.perf_counter()
    planned = roles.cpu()
    arm_budget = None if tokens.device.type == "cpu" else token_budget
    with torch.no_grad():
        parts = [
            _score_exactly(model, batch, plan) if plan.exact else _score_sampled(model, batch, plan)
            for batch in _slices(tokens, planned, list(sequences), plan, token_budget)
        ]
        likelihoods = {
            name: block_log_probs(arm, tokens, planned, arm_budget) for name, arm in arms.items()
        }
    roles = send(planned, tokens.device)
    scores = BlockScores(
        sequences=torch.tensor(list(sequences), dtype=torch.int64),
        num_tokens=(roles == Role.SCORED).sum(dim=-1),
        regimes=map_tensors(lambda _, *slices: torch.cat(slices), *parts),
        arms=likelihoods,
        num_bytes=None if token_bytes is None else block_sums(token_bytes, roles),
        documents=None if documents is None else at_scored(documents.long(), roles, NOWHERE),
    )
    scores = scores.to(exact_device(tokens.device))
    return replace(scores, seconds=time.perf_counter() - start)


def num_entries(plan: Plan, batch_size: int, length: int) -> int:
    """Count the numbers of the largest table of a batch, at most."""
    entries = batch_size * (-(-length // plan.block_size)) * plan.block_size * plan.most_sets
    return min(entries, _MAX_TABLE) if plan.exact else entries


def _slices(
    tokens: Tensor,
    roles: Tensor,
    sequences: list[int],
    plan: Plan,
    token_budget: TokenBudget | None,
) -> list[_Batch]:
    """Cut a batch so that full tables stay small, and draw its orderings."""
    batch, blocks, size = roles.shape
    together = max(1, _MAX_TABLE // (blocks * size << size))
    if not plan.exact:
        together = max(1, _MAX_SETS // (blocks * plan.num_orderings * size**2))
    slices = []
    for first in range(0, batch, together):
        ids = sequences[first : first + together]
        here = roles[first : first + together]
        drawn = plan.draw_times(ids, blocks).expand(len(ids), -1, -1, -1)
        times = torch.cat([drawn, left_to_right_times(here)[:, :, None]], dim=2)
        slices.append(_Batch(ids, tokens[first : first + together], here, times, token_budget))
    return slices


def _score_exactly(model: BlockModel[Any], batch: _Batch, plan: Plan) -> dict[str, RegimeScores]:
    """Run every revealed set once; all else is arithmetic on the table."""
    if plan.lattice_size < plan.block_size:
        short = score_short(model, batch.tokens, batch.roles, batch.times, plan, batch.token_budget)
        return _add_continuous(short, model, batch, plan)
    table = conditional_table(
        model, batch.tokens, roles=batch.roles, token_budget=batch.token_budget
    )
    exact = _exact_values(table, batch.roles, plan)
    continuous = None
    if plan.protocol.elbo_seeds:
        draws = _draw_hidden(batch, plan, table.device)
        codes = encode_sets(draws.revealed)
        rows = table.gather(2, repeat(codes, "b n k -> b n k size", size=table.shape[-1]))
        continuous = draws.weighted_elbo(rows)
    return {
        regime.name: split_fixed_order(
            score_orderings(table, batch.times, regime.steps, batch.roles),
            **exact.get(regime, {}),
            continuous_elbo=continuous if regime == ANY_ORDER else None,
        )
        for regime in plan.regimes
    }


def _draw_hidden(batch: _Batch, plan: Plan, device: torch.device) -> HiddenDraws:
    protocol = plan.protocol
    draws = hidden_draws(protocol.seed, batch.sequences, batch.roles, protocol.elbo_seeds)
    return map_tensors(lambda _, tensor: send(tensor, device), draws)


def _exact_values(
    table: Float64[Tensor, "batch blocks sets size"],
    roles: Int64[Tensor, "batch blocks size"],
    plan: Plan,
) -> dict[Regime, dict[str, Tensor]]:
    """Sum over all orders, regime by regime. Chunks count scored positions only."""
    chunked = [r for r in plan.exact_regimes if isinstance(r.unconstrained.steps, EqualChunks)]
    plain = [regime for regime in plan.exact_regimes if regime not in chunked]
    values = {}
    if plain:
        exact = exact_log_likelihoods(table, [regime.steps for regime in plain])
        for regime, likelihood in zip(plain, exact.unbind(dim=-1), strict=True):
            elbo = exact_elbo(table, regime.steps)
            values[regime] = {"exact": likelihood, "exact_elbo": elbo}
    return values | {regime: _exact_chunks(table, roles, regime) for regime in chunked}


def _exact_chunks(
    table: Float64[Tensor, "batch blocks sets size"],
    roles: Int64[Tensor, "batch blocks size"],
    regime: Regime,
) -> dict[str, Tensor]:
    """Sum over the chunks of each block's scored positions: blocks of the same roles together."""
    exact = torch.zeros(roles.shape[:2], dtype=torch.float64, device=table.device)
    elbo = torch.zeros_like(exact)
    for kind in roles.flatten(0, 1).unique(dim=0):
        if not (kind == Role.SCORED).any():
            continue
        blocks = torch.nonzero((roles == kind).all(dim=-1))
        here = tuple(send(blocks, table.device).unbind(dim=1))
        small = scored_table(table[here], kind)
        steps = regime.steps if kind[0] == Role.SCORED else regime.unconstrained.steps
        exact[here] = exact_log_likelihoods(small, [steps])[..., 0]
        elbo[here] = exact_elbo(small, steps)
    return {"exact": exact, "exact_elbo": elbo}


def _score_sampled(model: BlockModel[Any], batch: _Batch, plan: Plan) -> dict[str, RegimeScores]:
    """Run the distinct revealed sets of the draws, of all regimes together."""
    shape = batch.times.shape[:3]
    times = rearrange(batch.times, "b n k size -> (b n) k size")
    roles = rearrange(batch.roles, "b n size -> (b n) 1 size")
    drawn = [reveal_steps(times, regime.steps, roles) for regime in plan.regimes]
    sets = distinct_sets(*drawn)
    table = conditional_rows(
        model, batch.tokens, sets, roles=batch.roles, token_budget=batch.token_budget
    )
    position = torch.arange(table.shape[1], device=table.device)
    roles = send(roles, table.device)
    regimes = {}
    for regime, index in zip(plan.regimes, sets.index, strict=True):
        terms = table[send(index, table.device), position.expand_as(index)]
        scored = (roles == Role.SCORED).expand_as(index)
        scores = torch.where(scored, terms, 0.0).sum(dim=-1)
        regimes[regime.name] = split_fixed_order(scores.view(shape))
    return _add_continuous(regimes, model, batch, plan)


def _add_continuous(
    regimes: dict[str, RegimeScores], model: BlockModel[Any], batch: _Batch, plan: Plan
) -> dict[str, RegimeScores]:
    """Add the ELBO in continuous time to the any-order regime, if it is wanted."""
    if not plan.protocol.elbo_seeds:
        return regimes
    any_order = regimes[ANY_ORDER.name]
    continuous = _continuous_elbo(model, batch, plan)
    return regimes | {ANY_ORDER.name: replace(any_order, continuous_elbo=continuous)}


def _continuous_elbo(
    model: BlockModel[Any], batch: _Batch, plan: Plan
) -> Float64[Tensor, "batch blocks seeds"]:
    """Run the sets of the continuous-time draws, which no ordering shares."""
    draws = _draw_hidden(batch, plan, batch.roles.device)
    revealed = rearrange(draws.revealed, "b n k size -> (b n k) size")
    owner = torch.arange(len(revealed)) // plan.protocol.elbo_seeds
    block, distinct, row = unique_sets(owner, revealed)
    needed = ~distinct & (batch.roles.flatten(0, 1)[block] == Role.SCORED)
    sets = RevealedSets(distinct, needed, block, index=())
    table = conditional_rows(
        model, batch.tokens, sets, roles=batch.roles, token_budget=batch.token_budget
    )
    draws = map_tensors(lambda _, tensor: send(tensor, table.device), draws)
    return draws.weighted_elbo(table[send(row, table.device)].view(draws.hidden.shape))
