"""Draw sequences from a block model: blocks left to right, each in a random order.

The order prior is the likelihood's: the same reveal times, cut into steps by the same functions.
Every draw is a function of (seed, sequence id, block, position) alone, so a sequence is the same
whatever its batch, its neighbours and its device, up to rounding in the network.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from tube_lightning.networks import (
    NoisyRows,
    PlannedRows,
    SamplingModel,
    check_tokens,
    goes_first,
    size_of_blocks,
)
from tube_lightning.orderings import (
    ALREADY,
    NEVER,
    FirstFirst,
    Role,
    Steps,
    block_roles,
    reveal_steps,
    reveal_times,
)
from tube_lightning.placement import send
from tube_lightning.sampling.token_draws import draw_tokens, token_uniforms

C = TypeVar("C")
PredictRows = Callable[[NoisyRows], Float[Tensor, "needed vocab"]]
DrawTokens = Callable[[Float[Tensor, "tokens vocab"], Float64[Tensor, " tokens"]], Tensor]


def sample_sequences(
    model: SamplingModel[C],
    num_sequences: int,
    length: int,
    *,
    seed: int,
    steps: Steps = None,
    first_sequence: int = 0,
    prompt: Int64[Tensor, " given"] | None = None,
    temperature: float = 1.0,
    nucleus: float = 1.0,
    batch_size: int = 32,
    on_tokens: Callable[[int], None] | None = None,
) -> Iterator[Int64[Tensor, "batch length"]]:
    """Draw the sequences ``first_sequence``, ``first_sequence`` + 1, ... in batches.

    ``steps`` is the regime of each block: None reveals one token a step, T draws the step of each
    position out of T, ``EqualChunks(T)`` reveals equal chunks. Tokens of one step are drawn
    independently given those before. A model that is meant for orders that begin with the first
    token of a block has that drawn alone, before the steps. Every sequence begins with ``prompt``;
    None draws all of it. At ``temperature`` 1 and ``nucleus`` 1 (top-p) the distribution is the one
    whose likelihood ``tube_lightning.lattice`` computes. ``on_tokens`` hears of each batch of
    tokens that is done.
    """
    _check_model(model)
    for name, value in (("num_sequences", num_sequences), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    for name, value in (("seed", seed), ("first_sequence", first_sequence)):
        if value < 0:
            raise ValueError(f"{name}: expected at least 0, got {value}")
    num_given = 0 if prompt is None else len(prompt)
    _check_options(model, length, prompt, steps, temperature, nucleus)
    roles = block_roles(length, size_of_blocks(model, length), num_given)
    if goes_first(model) and not isinstance(steps, FirstFirst):
        steps = FirstFirst(steps)
    draw = partial(draw_tokens, temperature=temperature, nucleus=nucleus)
    device, end = model.device, first_sequence + num_sequences

    def batches() -> Iterator[Int64[Tensor, "batch length"]]:
        for first in range(first_sequence, end, batch_size):
            sequences = range(first, min(first + batch_size, end))
            tokens = torch.full((len(sequences), roles.numel()), model.mask_id, device=device)
            if prompt is not None:
                tokens[:, :num_given] = prompt.to(device)
            rounds = _draw_rounds(seed, sequences, steps, roles)
            uniforms = token_uniforms(seed, sequences, roles)
            for block in _fill_blocks(model, tokens, rounds, uniforms, draw, first):
                if on_tokens is not None:
                    on_tokens(len(sequences) * int((roles[block] < Role.ABSENT).sum()))
            yield tokens[:, :length]

    return batches()


def _check_model(model: object) -> None:
    """Refuse what cannot be sampled, and say what it takes."""
    if not isinstance(model, SamplingModel):
        raise TypeError(
            "model: expected one that can be sampled (a BlockModel with empty_context, extend, "
            f"logits and device), got {type(model).__name__}"
        )


def _check_options(
    model: SamplingModel[Any],
    length: int,
    prompt: Int64[Tensor, " given"] | None,
    steps: Steps,
    temperature: float,
    nucleus: float,
) -> None:
    """Refuse what cannot be drawn before anything is."""
    if not 1 <= length <= model.max_length:
        raise ValueError(f"length: expected 1 to {model.max_length} (the model's), got {length}")
    if prompt is not None and len(prompt):
        if len(prompt) > length:
            raise ValueError(f"prompt: expected at most {length} tokens, got {len(prompt)}")
        check_tokens(
            prompt[None], vocab_size=model.vocab_size, max_length=length, mask_id=model.mask_id
        )
    if isinstance(steps, int) and steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature: expected a finite number above 0, got {temperature}")
    if not 0 < nucleus <= 1:
        raise ValueError(f"nucleus: expected a probability above 0 and up to 1, got {nucleus}")


def _draw_rounds(
    seed: int, sequences: Sequence[int], steps: Steps, roles: Int64[Tensor, "blocks size"]
) -> Int64[Tensor, "batch blocks size"]:
    """Draw reveal steps, and number those of a block that reveal something from 0.

    So no round is empty. Given positions stay before the first step and absent ones after all.
    """
    num_blocks, size = roles.shape
    times = reveal_times(seed, sequences, range(num_blocks), num_orderings=1, size=size)
    reveal = reveal_steps(times[:, :, 0], steps, roles)
    scored = (roles == Role.SCORED).expand_as(reveal)
    ordered, positions = reveal.masked_fill(~scored, NEVER).sort(dim=-1)
    later = (ordered[..., 1:] > ordered[..., :-1]).cumsum(dim=-1)
    numbers = torch.zeros_like(reveal).scatter(-1, positions, F.pad(later, (1, 0)))
    return numbers.where(scored, reveal)


def _fill_blocks(
    model: SamplingModel[C],
    tokens: Int64[Tensor, "batch padded"],
    rounds: Int64[Tensor, "batch blocks size"],
    uniforms: Float64[Tensor, "batch blocks size"],
    draw: DrawTokens,
    first_sequence: int,
) -> Iterator[int]:
    """Draw the blocks of a batch in place, from left to right; yield the number of each."""
    num_blocks, size = rounds.shape[1:]
    context = model.empty_context(len(tokens))
    for block in range(num_blocks):
        _fill_block(
            partial(model.logits, context), block, tokens, rounds, uniforms, draw, first_sequence
        )
        if block < num_blocks - 1:
            with torch.no_grad():
                context = model.extend(context, tokens[:, block * size : (block + 1) * size])
        yield block


@torch.inference_mode()
def _fill_block(
    predict: PredictRows,
    block: int,
    tokens: Int64[Tensor, "batch padded"],
    rounds: Int64[Tensor, "batch blocks size"],
    uniforms: Float64[Tensor, "batch blocks size"],
    draw: DrawTokens,
    first_sequence: int,
) -> None:
    """Draw one block of each sequence in place, round by round, which are the host's to plan."""
    num_blocks, size = rounds.shape[1:]
    here, blocks = rounds[:, block], tokens.view(-1, size)
    peaks, where = [], []
    for index in range(int(here.masked_fill(here == NEVER, ALREADY).max()) + 1):
        now = here == index
        some = torch.nonzero(now.any(dim=1))[:, 0]
        number = some * num_blocks + block
        plan = PlannedRows(number, here[some] < index, now[some], num_blocks)
        (rows,) = plan.micro_batches(blocks)
        logits = predict(rows)
        peaks.append(logits.amax(dim=-1))
        where.append(torch.nonzero(now))
        sequence, offset = where[-1].unbind(dim=1)
        drawn = draw(logits, uniforms[sequence, block, offset])
        place = send(sequence * rounds[0].numel() + block * size + offset, tokens.device)
        tokens.view(-1)[place] = drawn.clamp(max=logits.shape[1] - 1)  # of numbers it is below
    if peaks:
        _refuse_non_finite(torch.cat(peaks), torch.cat(where), block * size, first_sequence)


def _refuse_non_finite(
    peaks: Float[Tensor, " tokens"],
    where: Int64[Tensor, "tokens two"],
    start: int,
    first_sequence: int,
) -> None:
    """Name the sequence and position of the first logits that are no numbers."""
    if peaks.isfinite().all():
        return
    first = int(torch.nonzero(~peaks.isfinite())[0])
    sequence, offset = where[first].tolist()
    raise ValueError(
        f"logits: expected finite numbers, got {peaks[first].item()} at sequence "
        f"{first_sequence + sequence}, position {start + offset}"
    )
