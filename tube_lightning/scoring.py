"""Revealed sets -> conditional table: where the network runs.

Data flow: tokens are read once (``encode``); the distinct (sequence, block, revealed set) rows go
through the network in micro-batches of a token budget; the log-probability of the true token at
each needed position comes back; all else in the table is zero. An ARM has one number a token, which
``block_log_probs`` sums over the same tokens.

Sets are on the host, which plans all micro-batches before the first: between them it never waits
for the device. Tables are where float64 lives (``tube_lightning.placement``).
"""

from typing import TypeVar

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float64, Int64, Shaped
from torch import Tensor

from tube_lightning.memory import TokenBudget
from tube_lightning.networks import (
    AutoregressiveModel,
    BlockModel,
    PlannedRows,
    check_tokens,
    num_unpredicted,
    size_of_blocks,
)
from tube_lightning.orderings import RevealedSets, Role, all_sets, block_roles, unique_sets
from tube_lightning.placement import exact_device, exactly, send
from tube_lightning.regimes import LARGEST_LATTICE

C = TypeVar("C")


def conditional_table(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    sets: Bool[Tensor, "sets size"] | None = None,
    *,
    roles: Int64[Tensor, "*#batch blocks size"] | None = None,
    token_budget: int | TokenBudget | None = None,
) -> Float64[Tensor, "batch blocks sets size"]:
    """Return log p(x_d | x_S, blocks before) of the true tokens, for every block and set S.

    ``sets`` says which positions are revealed (True); None is the full lattice in bit-mask order,
    ready for ``tube_lightning.lattice``. Given positions are visible in every set and absent ones
    in none, whatever ``sets`` says; cut ones do not exist. All but hidden scored positions have
    log-probability 0. A model that is one block has as many positions as ``tokens``.

    ``roles`` defaults to scoring every token of ``tokens`` that the model predicts: all, or all but
    the first, which is then given. At most ``token_budget`` tokens (or one
    sequence's clean ones) are in the network at once, whatever the batch and the number of sets;
    besides, there is the table itself. A device that runs out of memory gets half as many from then
    on, and what did not fit again: values then agree to rounding. The default is by the device's
    memory and the model's size.
    """
    roles = _roles_of_each(model, tokens, roles)
    batch, blocks, size = roles.shape
    if sets is None:
        if size > LARGEST_LATTICE:
            raise ValueError(
                f"sets: expected some for blocks of {size}: the full lattice is for at most "
                f"{LARGEST_LATTICE} positions; scored_lattice is that of the scored ones"
            )
        sets = all_sets(size)
    if sets.ndim != 2 or sets.shape[1] != size:
        raise ValueError(f"sets: expected [sets, {size}] (the block size), got {tuple(sets.shape)}")
    revealed = repeat(sets.cpu(), "sets size -> batch blocks sets size", batch=batch, blocks=blocks)
    here = rearrange(roles, "batch blocks size -> batch blocks 1 size")
    revealed = (revealed & (here == Role.SCORED)) | (here == Role.GIVEN)
    owner = repeat(torch.arange(batch * blocks), "rows -> (rows sets)", sets=len(sets))
    block, distinct, row = unique_sets(
        owner, rearrange(revealed, "b n sets size -> (b n sets) size")
    )
    needed = ~distinct & (roles.flatten(0, 1)[block] == Role.SCORED)
    rows = RevealedSets(distinct, needed, block, index=())
    table = conditional_rows(model, tokens, rows, roles=roles, token_budget=token_budget)
    row = send(row, table.device)
    return rearrange(table[row], "(b n sets) size -> b n sets size", b=batch, n=blocks)


def conditional_rows(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    sets: RevealedSets,
    *,
    roles: Int64[Tensor, "batch blocks size"] | None = None,
    token_budget: int | TokenBudget | None = None,
) -> Float64[Tensor, "rows size"]:
    """Return the rows of the conditional table that ``sets`` asks for; zero where not needed.

    ``sets.block`` counts the blocks of all sequences, one sequence after the other. This is the
    path of sampled orderings: ``table[sets.index[i], position]`` are the terms of regime i.
    ``roles`` tell which positions are cut; None if there are none.
    """
    check_tokens(
        tokens, vocab_size=model.vocab_size, max_length=model.max_length, mask_id=model.mask_id
    )
    (batch, length), size = tokens.shape, size_of_blocks(model, tokens.shape[1])
    budget = TokenBudget.of(token_budget, model, tokens.device)
    num_blocks = -(-length // size)
    revealed, needed, block = sets.revealed.cpu(), sets.needed.cpu(), sets.block.cpu()
    sequence, start = block // num_blocks, block % num_blocks * size
    _check_sets(revealed, needed, sequence, start, (batch, length))
    padded = F.pad(tokens, (0, num_blocks * size - length), value=model.mask_id)
    blocks = rearrange(padded, "batch (blocks size) -> (batch blocks) size", size=size)
    exists = _existing(model, roles)
    home = exact_device(tokens.device)
    table = torch.zeros(needed.shape, dtype=torch.float64, device=home)
    asked = torch.nonzero(needed.any(dim=1))[:, 0]
    asked = asked[block[asked].argsort(stable=True)]  # the rows of a block are neighbours

    def fill_rows(some: slice) -> None:
        theirs = asked[(sequence[asked] >= some.start) & (sequence[asked] < some.stop)]
        if not len(theirs):
            return  # documents of a single token, or draws that hide none
        own = None if exists is None else exists[block[theirs]]
        rows = PlannedRows(block[theirs], revealed[theirs], needed[theirs], num_blocks, own)
        context = model.encode(tokens[some])
        pieces = rows.micro_batches(blocks, budget.rows(size), some.start)
        found = torch.cat([model.log_probs(context, piece) for piece in pieces])
        row, offset = theirs[rows.places // size], rows.places % size
        table[send(row, home), send(offset, home)] = exactly(found)

    budget.run_slices(fill_rows, tokens, least=size)
    if not table.isfinite().all():
        row, offset = torch.nonzero(~table.isfinite())[0].tolist()
        raise ValueError(
            f"log-probability: expected a finite number, got {table[row, offset].item()} at "
            f"sequence {int(sequence[row])}, position {int(start[row]) + offset}"
        )
    return table


def block_log_probs(
    arm: AutoregressiveModel,
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    token_budget: TokenBudget | None = None,
) -> Float64[Tensor, "batch blocks"]:
    """Return an ARM's log-probability of the scored tokens of each block, in nats.

    The tokens are those that the block model is scored on: the same denominator. All sequences go
    through the ARM at once, or as many as a ``token_budget`` has, which halves as for block models.
    """
    if (roles[:, 0, 0] == Role.SCORED).any():
        raise ValueError("roles: expected token 0 to be given (an ARM has no probability for it)")
    log_probs = F.pad(_token_log_probs(arm, tokens, token_budget), (1, 0))
    return block_sums(log_probs, send(roles, log_probs.device))


def _token_log_probs(
    arm: AutoregressiveModel, tokens: Int64[Tensor, "batch length"], budget: TokenBudget | None
) -> Float64[Tensor, "batch length_minus_1"]:
    """Run an ARM on some sequences at a time."""
    if budget is None:
        return exactly(arm.token_log_probs(tokens))
    found: list[Tensor] = []
    budget.run_slices(
        lambda some: found.append(exactly(arm.token_log_probs(tokens[some]))),
        tokens,
        least=tokens.shape[1],
    )
    return torch.cat(found)


def block_sums(
    values: Shaped[Tensor, "batch length"], roles: Int64[Tensor, "batch blocks size"]
) -> Shaped[Tensor, "batch blocks"]:
    """Sum a number of each token over the scored tokens of each block."""
    return at_scored(values, roles, elsewhere=0).sum(dim=-1)


def at_scored(
    values: Shaped[Tensor, "batch length"],
    roles: Int64[Tensor, "batch blocks size"],
    elsewhere: int,
) -> Shaped[Tensor, "batch blocks size"]:
    """Cut a number of each token into blocks, with another one where nothing is scored."""
    _, blocks, size = roles.shape
    padded = F.pad(values, (0, blocks * size - values.shape[1]))
    by_block = rearrange(padded, "batch (blocks size) -> batch blocks size", size=size)
    return torch.where(roles == Role.SCORED, by_block, elsewhere)


def _check_sets(
    revealed: Bool[Tensor, "rows size"],
    needed: Bool[Tensor, "rows size"],
    sequence: Int64[Tensor, " rows"],
    start: Int64[Tensor, " rows"],
    shape: tuple[int, int],
) -> None:
    """Refuse rows that ask for what is not hidden, or not there."""
    batch, length = shape
    after_end = start[:, None] + torch.arange(needed.shape[1]) >= length
    for what, bad in (
        (f"a block of the {batch} sequences", (sequence < 0) | (sequence >= batch)),
        ("positions needed to be hidden", (needed & revealed).any(dim=1)),
        (f"positions needed before the end at {length}", (needed & after_end).any(dim=1)),
    ):
        if bad.any():
            raise ValueError(f"sets: expected {what}, got another in row {int(bad.nonzero()[0])}")


def _existing(
    model: BlockModel[C], roles: Int64[Tensor, "batch blocks size"] | None
) -> Bool[Tensor, "rows size"] | None:
    """Say which positions of all blocks exist; None if all do."""
    cut = None if roles is None else roles.flatten(0, 1).cpu() == Role.CUT
    if cut is None or not cut.any():
        return None
    if not getattr(model, "own_length", False):
        raise ValueError(
            f"roles: expected no cut positions for blocks of {model.block_size}: this model's "
            "blocks have one size; positions after the end are absent"
        )
    return ~cut


def _roles_of_each(
    model: BlockModel[C],
    tokens: Int64[Tensor, "batch length"],
    roles: Int64[Tensor, "*#batch blocks size"] | None,
) -> Int64[Tensor, "batch blocks size"]:
    """Default to scoring all that is predicted, and give every sequence its roles, on the host."""
    batch, length = tokens.shape
    everything = block_roles(length, size_of_blocks(model, length), num_unpredicted(model))
    roles = (everything if roles is None else roles).cpu()
    if (
        roles.shape[-2:] != everything.shape
        or (roles[..., everything == Role.ABSENT] != Role.ABSENT).any()
    ):
        raise ValueError(
            f"roles: expected [..., {everything.shape[0]}, {everything.shape[1]}] with positions "
            f"after token {length} absent, got shape {tuple(roles.shape)}"
        )
    return roles.expand(batch, *everything.shape)
