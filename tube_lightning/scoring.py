"""Revealed sets -> conditional table: where the network runs.

Data flow: tokens are read once (``encode``); the distinct (sequence, block, revealed set) rows go
through the network in micro-batches of a token budget; the log-probability of the true token at
each needed position comes back; all else in the table is zero.
"""

from typing import TypeVar

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from tube_lightning.models import BlockModel, NoisyRows, check_tokens
from tube_lightning.orderings import RevealedSets, Role, all_sets, block_roles, unique_sets

C = TypeVar("C")
DEFAULT_TOKEN_BUDGET = 1024


def conditional_table(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    sets: Bool[Tensor, "sets size"] | None = None,
    *,
    roles: Int64[Tensor, "*#batch blocks size"] | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
) -> Float64[Tensor, "batch blocks sets size"]:
    """Return log p(x_d | x_S, blocks before) of the true tokens, for every block and set S.

    ``sets`` says which positions are revealed (True); None is the full lattice in bit-mask order,
    ready for ``tube_lightning.lattice``. Given positions are visible in every set and absent ones
    in none, whatever ``sets`` says. Revealed, given and absent positions have log-probability 0.

    ``roles`` defaults to scoring every token of ``tokens``. Memory is bounded by ``token_budget``
    (tokens in the network at once), whatever the number of sets.
    """
    roles = _checked_roles(model, tokens, roles)
    sets = all_sets(model.block_size) if sets is None else sets
    if sets.ndim != 2 or sets.shape[1] != model.block_size:
        raise ValueError(
            f"sets: expected [sets, {model.block_size}] (the block size), got {tuple(sets.shape)}"
        )
    batch, blocks, _ = roles.shape
    revealed = repeat(
        sets.to(tokens.device), "sets size -> batch blocks sets size", batch=batch, blocks=blocks
    )
    here = rearrange(roles, "batch blocks size -> batch blocks 1 size")
    revealed = (revealed & (here == Role.SCORED)) | (here == Role.GIVEN)
    owner = repeat(
        torch.arange(batch * blocks, device=tokens.device), "rows -> (rows sets)", sets=len(sets)
    )
    block, distinct, row = unique_sets(
        owner, rearrange(revealed, "b n sets size -> (b n sets) size")
    )
    needed = ~distinct & (roles.flatten(0, 1)[block] == Role.SCORED)
    rows = RevealedSets(distinct, needed, block, index=())
    table = score_sets(model, tokens, rows, token_budget=token_budget)
    return rearrange(table[row], "(b n sets) size -> b n sets size", b=batch, n=blocks)


def score_sets(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    sets: RevealedSets,
    *,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
) -> Float64[Tensor, "rows size"]:
    """Return the rows of the conditional table that ``sets`` asks for; zero where not needed.

    ``sets.block`` counts the blocks of all sequences, one sequence after the other. This is the
    path of sampled orderings: ``table[sets.index[i], position]`` are the terms of regime i.
    """
    check_tokens(
        tokens, vocab_size=model.vocab_size, max_length=model.max_length, mask_id=model.mask_id
    )
    if token_budget < 1:
        raise ValueError(f"token_budget: expected at least 1, got {token_budget}")
    context = model.encode(tokens)
    table = torch.zeros(sets.needed.shape, dtype=torch.float64, device=tokens.device)
    asked = torch.nonzero(sets.needed.any(dim=1))[:, 0]
    for some in asked.split(max(1, token_budget // model.block_size)):
        rows = _noisy_rows(model, tokens, sets, some)
        log_probs = model.log_probs(context, rows)
        _refuse_non_finite(log_probs, rows)
        values = torch.zeros(rows.needed.shape, dtype=torch.float64, device=tokens.device)
        values[rows.needed] = log_probs.double()
        table[some] = values
    return table


def _noisy_rows(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    sets: RevealedSets,
    some: Int64[Tensor, " some"],
) -> NoisyRows:
    """Look up the tokens of some rows; positions after the end hold the mask."""
    length, size = tokens.shape[1], model.block_size
    num_blocks = -(-length // size)
    padded = torch.nn.functional.pad(tokens, (0, num_blocks * size - length), value=model.mask_id)
    blocks = rearrange(padded, "batch (blocks size) -> (batch blocks) size", size=size)
    block = sets.block[some]
    return NoisyRows(
        sequence=block // num_blocks,
        start=block % num_blocks * size,
        tokens=blocks[block],
        revealed=sets.revealed[some],
        needed=sets.needed[some],
    )


def _refuse_non_finite(log_probs: Float[Tensor, " needed"], rows: NoisyRows) -> None:
    """Name the sequence and position of the first log-probability that is no number."""
    bad = torch.nonzero(~log_probs.isfinite())
    if len(bad):
        row, offset = torch.nonzero(rows.needed)[bad[0, 0]].tolist()
        raise ValueError(
            f"log-probability: expected a finite number, got {log_probs[bad[0, 0]].item()} at "
            f"sequence {rows.sequence[row].item()}, position {rows.start[row].item() + offset}"
        )


def _checked_roles(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "*#batch blocks size"] | None,
) -> Int64[Tensor, "batch blocks size"]:
    """Default to scoring everything, and give every sequence its roles."""
    batch, length = tokens.shape
    everything = block_roles(length, model.block_size, num_given=0)
    roles = (everything if roles is None else roles).to(tokens.device)
    if (
        roles.shape[-2:] != everything.shape
        or (roles[..., everything == Role.ABSENT] != Role.ABSENT).any()
    ):
        raise ValueError(
            f"roles: expected [..., {everything.shape[0]}, {everything.shape[1]}] with positions "
            f"after token {length} absent, got shape {tuple(roles.shape)}"
        )
    return roles.expand(batch, *everything.shape)
