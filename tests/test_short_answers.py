"""A short answer behind a long prompt is exact, whatever the size of the block."""

import pytest
import torch

from tests.decoders import FIXTURES, GOLDEN, random_ids
from tube_lightning.checkpoints import load_block_model
from tube_lightning.evaluator import Plan, score_batch
from tube_lightning.lattice import exact_elbo, exact_log_likelihood
from tube_lightning.orderings import FirstFirst, Role
from tube_lightning.protocol import Protocol
from tube_lightning.scoring import conditional_table


def answer_roles(length, scored, after_end=Role.CUT):
    """One block; the answer is scored, what is before it is given."""
    roles = torch.full((1, 1, length), Role.GIVEN.value)
    roles[0, 0, scored] = Role.SCORED
    roles[0, 0, max(scored) + 1 :] = after_end
    return roles


def test_an_answer_in_one_block_has_the_value_of_the_small_lattice():
    model = load_block_model(FIXTURES / "llada")
    tokens = random_ids(2, 40)
    roles = torch.cat([answer_roles(40, [30, 31, 32]), answer_roles(40, [20, 22])])
    plan = Plan(Protocol(num_orderings=3, chunks=[2]), 40, most_scored=3)
    scores = score_batch(model, {}, tokens, roles, [0, 1], plan)
    for sequence, scored in enumerate(([30, 31, 32], [20, 22])):
        end = max(scored) + 1
        sets = torch.ones(2 ** len(scored), end, dtype=torch.bool)
        for code in range(len(sets)):
            for bit, position in enumerate(scored):
                sets[code, position] = bool(code >> bit & 1)
        own = tokens[sequence : sequence + 1, :end]
        table = conditional_table(model, own, sets)[0, 0][:, scored]
        for regime in plan.regimes:
            found = scores.regimes[regime.name]
            expected = exact_log_likelihood(table, regime.steps)
            assert found.exact[sequence, 0].item() == pytest.approx(expected.item(), abs=1e-5)
            expected = exact_elbo(table, regime.steps)
            assert found.exact_elbo[sequence, 0].item() == pytest.approx(expected.item(), abs=1e-5)


def test_sampled_orders_have_the_same_scores_exactly_and_not():
    model = load_block_model(FIXTURES / "llada")
    tokens, roles = random_ids(1, 24), answer_roles(24, [10, 11, 15, 16])
    protocol = Protocol(num_orderings=5)
    exact = score_batch(model, {}, tokens, roles, [3], Plan(protocol, 24, most_scored=4))
    sampled = score_batch(model, {}, tokens, roles, [3], Plan(protocol, 24))
    for name, found in sampled.regimes.items():
        assert found.exact is None
        same = exact.regimes[name]
        torch.testing.assert_close(same.scores, found.scores, atol=1e-5, rtol=0)
        torch.testing.assert_close(same.left_to_right, found.left_to_right, atol=1e-5, rtol=0)


@pytest.mark.parametrize("first", [Role.SCORED, Role.GIVEN])
def test_the_first_token_first_where_it_is_scored(first):
    model = load_block_model(FIXTURES / "fast_dllm_v2", **GOLDEN["fast_dllm_v2"], block_size=8)
    tokens = random_ids(1, 16)
    roles = torch.full((1, 2, 8), Role.GIVEN.value)
    roles[0, 1, [3, 6]] = Role.SCORED
    roles[0, 1, 0] = first
    plan = Plan(Protocol(num_orderings=4, chunks=[2]), 8, first_first=True, most_scored=3)
    scores = score_batch(model, {}, tokens, roles, [0], plan)
    table = conditional_table(model, tokens, roles=roles)[0, 1]
    for regime in plan.regimes:
        if "chunks" in regime.name:
            continue  # positions that are not scored would fill a place
        expected = exact_log_likelihood(table, regime.steps).item()
        assert isinstance(regime.steps, FirstFirst)
        found = scores.regimes[regime.name].exact
        assert found[0, 1].item() == pytest.approx(expected, abs=1e-5)
        assert found[0, 0].item() == 0
