"""The sampler's side of a block model: clean blocks one by one, and logits behind them."""

from dataclasses import replace

import pytest
import torch

from tests.networks import LENGTH, VOCAB, random_model, random_network, random_tokens
from tube_lightning.networks import BlockDiffusion, NoisyRows, plan_grouped

TOLERANCE = 1e-5


def extended(model, tokens):
    context = model.empty_context(len(tokens))
    for start in range(0, tokens.shape[1], model.block_size):
        context = model.extend(context, tokens[:, start : start + model.block_size])
    return context


def rows_at(model, tokens, start, sequences, seed=0):
    """Random sets of the block at ``start``, one a sequence."""
    generator = torch.Generator().manual_seed(seed)
    block = tokens[sequences, start : start + model.block_size]
    revealed = torch.rand(block.shape, generator=generator) < 0.4
    needed = ~revealed & (torch.rand(block.shape, generator=generator) < 0.8)
    return NoisyRows(sequences, torch.full_like(sequences, start), block, revealed, needed)


@pytest.mark.parametrize("block_size", [1, 2, 4, 8])
def test_blocks_one_by_one_equal_the_whole_stream(block_size):
    model, tokens = random_model(block_size), random_tokens(3)
    whole = model.encode(tokens)  # all blocks but the last
    steps = extended(model, tokens[:, :-block_size])
    assert steps.length == LENGTH - block_size
    for name in ("keys", "values"):
        for one, other in zip(getattr(steps, name), getattr(whole, name), strict=True):
            torch.testing.assert_close(one, other, atol=TOLERANCE, rtol=0)


def test_extending_leaves_the_context_alone():
    model, tokens = random_model(4), random_tokens(2)
    context = extended(model, tokens[:, :8])
    before = [keys.clone() for keys in context.keys]
    model.extend(context, tokens[:, 8:12])
    assert all(map(torch.equal, before, context.keys))


def test_a_block_of_another_shape_is_refused():
    model, tokens = random_model(4), random_tokens(3)
    with pytest.raises(ValueError, match=r"block of 4 for each of 2 sequences, got shape \(3, 4\)"):
        model.extend(model.empty_context(2), tokens[:, :4])
    with pytest.raises(ValueError, match=r"got shape \(3, 3\)"):
        model.extend(model.empty_context(3), tokens[:, :3])


def check_logits(model, context, rows):
    logits = model.logits(context, rows)
    assert logits.dtype == torch.float32
    assert (logits[:, VOCAB - 1] == -torch.inf).all()
    true = logits.log_softmax(dim=-1).gather(1, rows.tokens[rows.needed][:, None])[:, 0]
    torch.testing.assert_close(true, model.log_probs(context, rows), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("start", [0, 4, 20])
@pytest.mark.parametrize("sequences", [[0, 1, 2], [1], [0, 2]])
def test_logits_behind_the_context_are_those_of_log_probs(start, sequences):
    model, tokens = random_model(4), random_tokens(3)
    context = extended(model, tokens[:, :start])
    check_logits(model, context, rows_at(model, tokens, start, torch.tensor(sequences)))


def test_logits_of_any_rows_are_those_of_log_probs():
    model, tokens = random_model(4), random_tokens(3)
    rows = [rows_at(model, tokens, start, torch.tensor([0, 2]), seed=start) for start in (4, 16)]
    names = ("sequence", "start", "tokens", "revealed", "needed")
    order = torch.tensor([0, 2, 1, 3])  # by sequence, then by start
    both = {name: torch.cat([getattr(some, name) for some in rows])[order] for name in names}
    check_logits(model, model.encode(tokens), replace(rows[0], **both))


def test_a_given_attention_is_used_for_logits_too():
    network, tokens = random_network(4), random_tokens(3)
    model = BlockDiffusion(network.config, network.fold().freeze(), plan_grouped)
    check_logits(model, extended(model, tokens[:, :8]), rows_at(model, tokens, 8, torch.arange(3)))


def test_bfloat16_trunk():
    model = BlockDiffusion.from_network(random_network(4, std=0.1), torch.bfloat16)
    tokens = random_tokens(2)
    context = extended(model, tokens[:, :8])
    assert context.keys[0].dtype == torch.bfloat16
    assert model.logits(context, rows_at(model, tokens, 8, torch.arange(2))).dtype == torch.float32
