"""Diffusion decoders on a device that is not there: every tensor is where it belongs."""

import pytest
import torch
from pretend_device import (
    PRETEND,
    both_kinds,  # noqa: F401 (a fixture)
    same_arithmetic,  # noqa: F401
)

from tests.decoders import FIXTURES, GOLDEN, random_ids, save_layout
from tube_lightning.checkpoints import load_block_model
from tube_lightning.evaluator import Plan, score_batch
from tube_lightning.evaluator.batches import sequence_roles
from tube_lightning.networks import DecoderARM
from tube_lightning.orderings import Role
from tube_lightning.protocol import Protocol
from tube_lightning.sampling import sample_sequences

pytestmark = pytest.mark.usefixtures("same_arithmetic", "both_kinds")


def scores_on(device, model, exact):
    tokens, lengths = random_ids(2, 8), torch.tensor([8, 6])
    own = model.own_length
    after_end = Role.CUT if own else Role.ABSENT
    size = 8 if own else model.block_size
    protocol = Protocol(num_orderings=2, exact_max_block_size=8 if exact else 0)
    plan = Plan(protocol, size, model.first_goes_first, 7 if own else None)
    roles = sequence_roles(lengths, 8, size, after_end)
    return score_batch(model.to(device), {}, tokens.to(device), roles, [0, 1], plan)


@pytest.mark.parametrize(
    ("name", "exact"), [("sdar", True), ("llada", False), ("dream", True), ("fast_dllm_v2", False)]
)
def test_scores_are_the_cpus(name, exact):
    model = load_block_model(FIXTURES / name, **GOLDEN[name])
    expected = scores_on(torch.device("cpu"), model, exact)
    found = scores_on(PRETEND, model, exact)
    for regime, values in expected.regimes.items():
        same = found.regimes[regime]
        torch.testing.assert_close(same.scores.cpu(), values.scores, atol=1e-5, rtol=0)
        if exact:
            torch.testing.assert_close(same.exact.cpu(), values.exact, atol=1e-5, rtol=0)


def test_samples_are_drawn_there():
    model = load_block_model(FIXTURES / "fast_dllm_v2", **GOLDEN["fast_dllm_v2"])
    prompt = torch.tensor([3])
    expected = next(sample_sequences(model, 2, 6, seed=0, prompt=prompt))
    found = next(sample_sequences(model.to(PRETEND), 2, 6, seed=0, prompt=prompt))
    assert torch.equal(found.cpu(), expected)


def test_an_own_arm_is_there_too(tmp_path):
    model = load_block_model(tmp_path, **save_layout("nemotron", tmp_path))
    tokens = random_ids(2, 12)
    expected = DecoderARM(model).token_log_probs(tokens)
    found = DecoderARM(model.to(PRETEND)).token_log_probs(tokens.to(PRETEND))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=0)
