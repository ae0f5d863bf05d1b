"""Surrogates that no sampled ordering enters: the fixed order, and another model."""

import math
from pathlib import Path

import pytest
import torch

from tube_lightning.checkpoints import load_arm
from tube_lightning.orderings import (
    EqualChunks,
    Role,
    block_roles,
    left_to_right_times,
    reveal_steps,
)
from tube_lightning.scoring import block_log_probs

AR = Path(__file__).parent / "fixtures" / "ar"
ROLES = {
    "all scored": [0] * 8,
    "token 0 given": [1] + [0] * 7,
    "prompt and end": [1, 1, 1, 0, 0, 0, 0, 2],
    "holes": [0, 1, 0, 2, 0, 0, 1, 0],
    "one scored": [1, 0, 2, 2, 2, 2, 2, 2],
    "none scored": [2] * 8,
    "a block of 5": [0] * 5,
}


def steps_by_hand(roles, regime):
    """Walk over the scored positions from left to right, in runs as even as the regime has."""
    scored = [position for position, role in enumerate(roles) if role == 0]
    steps = {}
    for rank, position in enumerate(scored):
        if regime is None:
            steps[position] = rank
        elif isinstance(regime, int):  # the middle of its share of the time, in whole numbers
            steps[position] = (2 * rank + 1) * regime // (2 * len(scored))
        else:
            bounds = [0]
            for chunk in range(regime.number):
                larger = chunk < len(scored) % regime.number
                bounds.append(bounds[-1] + len(scored) // regime.number + larger)
            steps[position] = next(c for c in range(regime.number) if rank < bounds[c + 1])
    return steps


@pytest.mark.parametrize("regime", [None, 1, 2, 3, 4, 8, 100, EqualChunks(2), EqualChunks(3)])
@pytest.mark.parametrize("name", ROLES)
def test_fixed_order_in_every_regime(name, regime):
    roles = torch.tensor(ROLES[name])
    times = left_to_right_times(roles)
    assert ((times >= 0) & (times < 1)).all()
    steps = reveal_steps(times, regime, roles)
    for position, step in steps_by_hand(ROLES[name], regime).items():
        assert steps[position] == step


@pytest.mark.parametrize("num_steps", [2, 4, 8])
def test_steps_that_divide_the_block_are_runs_of_one_length(num_steps):
    steps = reveal_steps(left_to_right_times(torch.zeros(8, dtype=torch.int64)), num_steps)
    run = 8 // num_steps
    assert steps.tolist() == [position // run for position in range(8)]


def test_fixed_order_of_each_block_is_its_own():
    roles = torch.stack([block_roles(14, 8), block_roles(9, 8, num_given=3)])
    times = left_to_right_times(roles)
    assert times.dtype == torch.float64
    for at in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert torch.equal(times[at], left_to_right_times(roles[at]))


@pytest.fixture(scope="module")
def arm():
    return load_arm(AR)


def some_tokens(arm, batch, length):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, arm.vocab_size - 1, (batch, length), generator=generator)


@pytest.mark.parametrize(("length", "block_size"), [(16, 4), (13, 4), (11, 8), (3, 16)])
def test_arm_blocks_are_sums_of_tokens(arm, length, block_size):
    """Ragged ends; a longer prompt in one sequence, and an earlier end in another."""
    tokens = some_tokens(arm, 3, length)
    roles = block_roles(length, block_size).repeat(3, 1, 1)
    flat = roles.view(3, -1)
    flat[1, :2] = Role.GIVEN
    flat[2, length - 1 :] = Role.ABSENT
    per_token = arm.token_log_probs(tokens).tolist()
    values = block_log_probs(arm, tokens, roles)
    assert values.dtype == torch.float64
    for sequence, blocks in enumerate(values.tolist()):
        for block, value in enumerate(blocks):
            positions = range(block * block_size, min(length, (block + 1) * block_size))
            scored = [p for p in positions if flat[sequence, p] == Role.SCORED]
            want = math.fsum(per_token[sequence][position - 1] for position in scored)
            assert value == pytest.approx(want, abs=1e-12)
    tokens_scored = (roles == Role.SCORED).sum().item()
    assert tokens_scored == 3 * (length - 1) - 1 - 1  # one more given, one absent


def test_padding_does_not_reach_the_tokens_before(arm):
    tokens = some_tokens(arm, 1, 16)
    roles = block_roles(10, 4)[None]
    padded = tokens.clone()
    padded[0, 10:] = 0
    longer = torch.cat([roles, torch.full((1, 1, 4), Role.ABSENT.value)], dim=1)
    alone = block_log_probs(arm, tokens[:, :10], roles)
    together = block_log_probs(arm, padded, longer)
    torch.testing.assert_close(together[:, :3], alone, atol=1e-5, rtol=0)
    assert together[0, 3] == 0


def test_a_text_of_one_token_has_nothing_to_score(arm):
    values = block_log_probs(arm, torch.tensor([[3]]), block_roles(1, 4)[None])
    assert values.tolist() == [[0.0]]


def test_token_0_must_be_given(arm):
    roles = block_roles(8, 4).repeat(2, 1, 1)
    roles[1, 0, 0] = Role.SCORED
    with pytest.raises(ValueError, match="roles: expected token 0 to be given"):
        block_log_probs(arm, some_tokens(arm, 2, 8), roles)
