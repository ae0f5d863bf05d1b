"""Samples of diffusion decoders have the distribution whose likelihood is computed."""

import itertools

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tube_lightning.lattice import exact_log_likelihood
from tube_lightning.networks import DecoderBlockModel, DecoderFacts
from tube_lightning.orderings import FirstFirst, block_roles
from tube_lightning.sampling import sample_sequences
from tube_lightning.scoring import conditional_table

WORDS, MASK = 3, 3
NUM_DRAWS = 6_000
WHOLE = {"block_size": None, "context": "none"}
BLOCKS = {"block_size": 2, "context": "block"}
FACTS = {
    "sdar": ("qwen3", BLOCKS),
    "llada": ("llama", WHOLE),
    "dream": ("qwen2", WHOLE | {"shift": True, "first": "given"}),
    "fast_dllm_v2": (
        "qwen2",
        BLOCKS | {"shift": True, "first": "previous", "first_goes_first": True},
    ),
    "nemotron": ("ministral3", BLOCKS | {"context": "causal"}),
}


def tiny_model(name):
    """Weights large enough for the order to matter."""
    backbone, facts = FACTS[name]
    config = AutoConfig.for_model(
        backbone,
        vocab_size=WORDS + 1,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=8,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    network = AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return DecoderBlockModel(network, DecoderFacts(mask_id=MASK, max_length=8, **facts))


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("name", FACTS)
def test_frequencies_are_the_exact_probabilities(name, steps):
    model, length, prompt = tiny_model(name), 4, torch.tensor([1])
    outcomes = torch.tensor([[1, *end] for end in itertools.product(range(WORDS), repeat=3)])
    size = length if model.own_length else model.block_size
    table = conditional_table(model, outcomes, roles=block_roles(length, size))
    regime = FirstFirst(steps) if model.first_goes_first else steps
    expected = exact_log_likelihood(table, regime).sum(dim=-1).exp()
    batches = sample_sequences(
        model, NUM_DRAWS, length, seed=0, steps=steps, prompt=prompt, batch_size=2_000
    )
    drawn = torch.cat(list(batches))
    found = (drawn[:, None] == outcomes).all(dim=-1).double().mean(dim=0)
    error = (expected * (1 - expected) / NUM_DRAWS).sqrt()
    assert ((found - expected).abs() < 4.5 * error).all()
    without_mask = (drawn != MASK).all(dim=1).double().mean()
    assert 0.2 < expected.sum() < 1  # the mask token may be drawn: nothing is suppressed
    assert abs(without_mask - expected.sum()) < 4.5 * 0.5 / NUM_DRAWS**0.5


@pytest.mark.parametrize("name", ["sdar", "fast_dllm_v2", "nemotron"])
def test_blocks_read_one_by_one_make_the_context_of_all(name):
    model = tiny_model(name)
    tokens = torch.randint(WORDS, (3, 8), generator=torch.Generator().manual_seed(0))
    whole = model.encode(tokens)
    context = model.empty_context(3)
    for block in tokens.split(2, dim=1)[:-1]:
        context = model.extend(context, block)
    for one, two in zip(whole.keys, context.keys, strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(whole.ends, context.ends)
    with pytest.raises(ValueError, match="expected a block of 2"):
        model.extend(context, tokens[:, :1])
