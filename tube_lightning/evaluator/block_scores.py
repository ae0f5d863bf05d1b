"""One batch through the networks: tokens -> revealed sets -> conditional table -> scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.evaluator.continuous_time import hidden_draws
from tube_lightning.evaluator.plan import ANY_ORDER, Plan
from tube_lightning.lattice import (
    exact_elbo,
    exact_log_likelihoods,
    score_orderings,
    scored_table,
)
from tube_lightning.networks import AutoregressiveModel, BlockModel
from tube_lightning.orderings import (
    EqualChunks,
    RevealedSets,
    Role,
    distinct_sets,
    encode_sets,
    reveal_steps,
    unique_sets,
)
from tube_lightning.score_files import BlockScores, RegimeScores
from tube_lightning.scoring import conditional_table, score_sets
from tube_lightning.surrogates import block_log_probs, left_to_right_times

_MAX_TABLE = 1 << 24
"""Most entries of a full table at a time (128 MiB): sequences are taken in slices of it."""


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some sequences with all their draws, on the device of the model."""

    sequences: list[int]
    tokens: Int64[Tensor, "batch length"]
    roles: Int64[Tensor, "batch blocks size"]
    times: Float64[Tensor, "batch blocks orderings size"]
    """The sampled orderings, and last the fixed one from left to right."""


def score_batch(
    model: BlockModel[Any],
    arms: Mapping[str, AutoregressiveModel],
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    sequences: Sequence[int],
    plan: Plan,
) -> BlockScores:
    """Score all blocks of some sequences under every regime of the plan.

    ``arms`` are the autoregressive surrogates by name (arm, arm_ft). Values depend on the seed, the
    sequences' ids and their tokens; which others are in the batch does not matter.
    """
    start = time.perf_counter()
    with torch.no_grad():
        parts = [
            _score_exactly(model, batch, plan) if plan.exact else _score_sampled(model, batch, plan)
            for batch in _slices(tokens, roles, list(sequences), plan)
        ]
        log_psi = {name: block_log_probs(arm, tokens, roles) for name, arm in arms.items()}
    regimes = {name: _joined([part[name] for part in parts], log_psi) for name in plan.regimes}
    return BlockScores(
        sequences=torch.tensor(list(sequences), dtype=torch.int64),
        num_tokens=(roles == Role.SCORED).sum(dim=-1),
        regimes=regimes,
        seconds=time.perf_counter() - start,
    )


def _slices(tokens: Tensor, roles: Tensor, sequences: list[int], plan: Plan) -> list[_Batch]:
    """Cut a batch so that full tables stay small, and draw its orderings."""
    batch, blocks, size = roles.shape
    entries = blocks * size * (1 << size) if plan.exact else 1
    together = max(1, _MAX_TABLE // entries) if plan.exact else batch
    slices = []
    for first in range(0, batch, together):
        ids = sequences[first : first + together]
        here = roles[first : first + together]
        drawn = plan.draws(ids, blocks).to(tokens.device).expand(len(ids), -1, -1, -1)
        times = torch.cat([drawn, left_to_right_times(here)[:, :, None]], dim=2)
        slices.append(_Batch(ids, tokens[first : first + together], here, times))
    return slices


def _regime_scores(
    scores: Float64[Tensor, "batch blocks orderings"], **values: Tensor | None
) -> RegimeScores:
    """Split off the fixed order, which is the surrogate psi_pi."""
    return RegimeScores(scores[..., :-1], log_psi={"pi": scores[..., -1]}, **values)


def _score_exactly(model: BlockModel[Any], batch: _Batch, plan: Plan) -> dict[str, RegimeScores]:
    """Run every revealed set once; all else is arithmetic on the table."""
    table = conditional_table(model, batch.tokens, roles=batch.roles)
    exact = _exact_values(table, batch.roles, plan)
    continuous = None
    if plan.elbo_seeds:
        draws = hidden_draws(plan.seed, batch.sequences, batch.roles, plan.elbo_seeds)
        codes = encode_sets(draws.revealed)
        rows = table.gather(2, repeat(codes, "b n k -> b n k size", size=table.shape[-1]))
        continuous = draws.weighted_elbo(rows)
    return {
        name: _regime_scores(
            score_orderings(table, batch.times, steps, batch.roles),
            **exact.get(name, {}),
            continuous_elbo=continuous if name == ANY_ORDER else None,
        )
        for name, steps in plan.regimes.items()
    }


def _exact_values(
    table: Float64[Tensor, "batch blocks sets size"],
    roles: Int64[Tensor, "batch blocks size"],
    plan: Plan,
) -> dict[str, dict[str, Tensor]]:
    """Sum over all orders, regime by regime. Chunks count scored positions only."""
    plain = [n for n in plan.exact_regimes if not isinstance(plan.regimes[n], EqualChunks)]
    values: dict[str, dict[str, Tensor]] = {}
    if plain:
        exact = exact_log_likelihoods(table, [plan.regimes[name] for name in plain])
        for number, name in enumerate(plain):
            values[name] = {
                "exact": exact[..., number],
                "exact_elbo": exact_elbo(table, plan.regimes[name]),
            }
    chunked = [name for name in plan.exact_regimes if name not in plain]
    for name in chunked:
        exact_chunks = torch.zeros(roles.shape[:2], dtype=torch.float64, device=roles.device)
        elbo_chunks = torch.zeros_like(exact_chunks)
        for kind in roles.flatten(0, 1).unique(dim=0):
            here = (roles == kind).all(dim=-1)
            if not (kind == Role.SCORED).any():
                continue
            small, steps = scored_table(table[here], kind), plan.regimes[name]
            exact_chunks[here] = exact_log_likelihoods(small, [steps])[..., 0]
            elbo_chunks[here] = exact_elbo(small, steps)
        values[name] = {"exact": exact_chunks, "exact_elbo": elbo_chunks}
    return values


def _score_sampled(model: BlockModel[Any], batch: _Batch, plan: Plan) -> dict[str, RegimeScores]:
    """Run the distinct revealed sets of the draws, of all regimes together."""
    shape = batch.times.shape[:3]
    times = rearrange(batch.times, "b n k size -> (b n) k size")
    roles = rearrange(batch.roles, "b n size -> (b n) 1 size")
    drawn = {name: reveal_steps(times, steps, roles) for name, steps in plan.regimes.items()}
    sets = distinct_sets(*drawn.values())
    table = score_sets(model, batch.tokens, sets)
    position = torch.arange(table.shape[1], device=table.device)
    regimes = {}
    for (name, steps), index in zip(drawn.items(), sets.index, strict=True):
        terms = table[index, position.expand_as(index)]
        scored = (roles == Role.SCORED).expand_as(steps)
        scores = torch.where(scored, terms, 0.0).sum(dim=-1)
        regimes[name] = _regime_scores(scores.view(shape))
    if plan.elbo_seeds:
        continuous = _continuous_elbo(model, batch, plan)
        regimes[ANY_ORDER] = replace(regimes[ANY_ORDER], continuous_elbo=continuous)
    return regimes


def _continuous_elbo(
    model: BlockModel[Any], batch: _Batch, plan: Plan
) -> Float64[Tensor, "batch blocks seeds"]:
    """Run the sets of the continuous-time draws, which no ordering shares."""
    draws = hidden_draws(plan.seed, batch.sequences, batch.roles, plan.elbo_seeds)
    revealed = rearrange(draws.revealed, "b n k size -> (b n k) size")
    owner = torch.arange(len(revealed), device=revealed.device) // plan.elbo_seeds
    block, distinct, row = unique_sets(owner, revealed)
    needed = ~distinct & (batch.roles.flatten(0, 1)[block] == Role.SCORED)
    table = score_sets(model, batch.tokens, RevealedSets(distinct, needed, block, index=()))
    return draws.weighted_elbo(table[row].view(draws.hidden.shape))


def _joined(parts: list[RegimeScores], log_psi: Mapping[str, Tensor]) -> RegimeScores:
    """Put slices together again, and add the surrogates that no slice has."""

    def cat(name: str) -> Any:  # noqa: ANN401 (a tensor or None)
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values)

    own = torch.cat([(part.log_psi or {})["pi"] for part in parts])
    return RegimeScores(
        cat("scores"),
        cat("exact"),
        cat("exact_elbo"),
        cat("continuous_elbo"),
        {"pi": own, **log_psi},
    )
