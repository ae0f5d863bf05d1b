"""Mistakes that are silent otherwise: found when a checkpoint is loaded."""

from dataclasses import replace

import pytest
import torch

from tests.decoders import FIXTURES, GOLDEN, save_layout
from tube_lightning.checkpoints import load_block_model
from tube_lightning.networks import DecoderBlockModel, check_decoder

DECODERS = [name for name in GOLDEN if name != "radd"]


def read_otherwise(name, **wrong):
    """A network read with facts that are not its family's, and its family's."""
    model = load_block_model(FIXTURES / name, **GOLDEN[name], check=False)
    return DecoderBlockModel(model.network, replace(model.config, **wrong)), model.config


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_read_as_its_family_says_passes(name):
    model, facts = read_otherwise(name)
    check_decoder(model, facts, name)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dream", {"shift": False, "first": "own"}),
        ("llada", {"shift": True, "first": "given"}),
        ("sdar", {"shift": True, "first": "previous"}),
        ("sdar", {"context": "causal"}),
        ("llada2_moe", {"context": "causal"}),
        ("sdar", {"block_size": 2}),
        ("fast_dllm_v2", {"shift": False, "first": "own"}),
        ("fast_dllm_v2", {"context": "causal"}),
        ("sdar", {"mask_id": 60}),
    ],
)
def test_wrong_facts_are_found(name, wrong):
    model, facts = read_otherwise(name, **wrong)
    with pytest.raises(ValueError, match=r"of a plain forward|the first token of a sequence"):
        check_decoder(model, facts, name)


def test_a_causal_reading_of_nemotron_is_not_block_causal(tmp_path):
    model = load_block_model(tmp_path, **save_layout("nemotron", tmp_path))
    wrong = DecoderBlockModel(model.network, replace(model.config, context="block"))
    with pytest.raises(ValueError, match="attention, shift or class"):
        check_decoder(wrong, model.config, "nemotron")


def test_a_suppressed_mask_is_found():
    model, facts = read_otherwise("sdar", suppressed=(61,))
    logits = model.head[1]
    assert logits[61] == -torch.inf
    with pytest.raises(ValueError, match=r"plain forward|expected the mask token 61 to be predict"):
        check_decoder(model, facts, "sdar")


@pytest.mark.parametrize("context", ["later tokens of their block", "later blocks"])
def test_what_hidden_tokens_see_is_tried(monkeypatch, context):
    model, facts = read_otherwise("sdar")
    trial = "tube_lightning.networks.decoder_check._Trial.by_rows"
    if context == "later blocks":
        values = iter([torch.zeros(2), torch.ones(2), torch.ones(2)])
    else:
        values = iter([torch.zeros(2), torch.zeros(2)])
    monkeypatch.setattr(trial, lambda *_: next(values))
    monkeypatch.setattr(trial.replace("by_rows", "by_plain_forward"), lambda *_: torch.zeros(2))
    with pytest.raises(ValueError, match=f"expected hidden tokens (not )?to see {context}"):
        check_decoder(model, facts, "sdar")


@pytest.mark.parametrize("size", [1, 2, 3, 64])
@pytest.mark.parametrize("name", ["sdar", "fast_dllm_v2"])
def test_blocks_of_any_size_pass(name, size):
    assert load_block_model(FIXTURES / name, mask_id=61, block_size=size).block_size == size


@pytest.mark.parametrize("name", ["llada", "dream"])
def test_the_shortest_sequences_pass(name):
    for length in (1, 2, 3):
        assert load_block_model(FIXTURES / name, model_length=length).max_length == length


def test_half_precision_passes_too():
    for name in DECODERS:
        load_block_model(FIXTURES / name, **GOLDEN[name], dtype="float16")
