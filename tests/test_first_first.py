"""Orders that begin with a block's first token: steps, lattice and estimators, by enumeration."""

import itertools
import math

import pytest
import torch

from tests import oracles
from tube_lightning.evaluator import Plan
from tube_lightning.lattice import exact_cubo, exact_elbo, exact_log_likelihoods, score_orderings
from tube_lightning.orderings import EqualChunks, FirstFirst, Role, all_orderings, reveal_steps
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import Regime, headline, list_regimes

SIZE = 4


def constrained_ways(rest):
    """All equally likely reveal steps of a block, its first position alone and before the rest."""
    others = range(SIZE - 1)
    if isinstance(rest, int):
        ways = itertools.product(range(rest), repeat=SIZE - 1)
    else:
        sizes = (1,) * (SIZE - 1) if rest is None else rest.sizes(SIZE - 1)
        step_of_rank = [step for step, size in enumerate(sizes) for _ in range(size)]
        ways = ([step_of_rank[r] for r in ranks] for ranks in itertools.permutations(others))
    return [[0, *(1 + step for step in way)] for way in ways]


@pytest.mark.parametrize("rest", [None, 1, 2, 3, EqualChunks(2)])
def test_the_lattice_sums_the_orders_that_begin_with_the_first(rest):
    table = oracles.random_table(0, SIZE)
    scores = oracles.scores(table, constrained_ways(rest))
    found = torch.tensor(table, dtype=torch.float64)
    (likelihood,) = exact_log_likelihoods(found, [FirstFirst(rest)])
    assert likelihood.item() == pytest.approx(float(oracles.elbo_k(scores)), abs=1e-12)
    elbo = exact_elbo(found, FirstFirst(rest))
    assert elbo.item() == pytest.approx(float(oracles.mean(scores)), abs=1e-12)
    cubo = exact_cubo(found, 2.0, FirstFirst(rest))
    assert cubo.item() == pytest.approx(float(oracles.cubo(scores, 2)), abs=1e-12)


@pytest.mark.parametrize("rest", [None, EqualChunks(2)])
def test_draws_are_uniform_over_those_orders(rest):
    table = torch.tensor(oracles.random_table(1, SIZE), dtype=torch.float64)
    drawn = score_orderings(table, all_orderings(SIZE), FirstFirst(rest))
    expected = [float(score) for score in oracles.scores(table.tolist(), constrained_ways(rest))]
    repeated = sorted(expected * (math.factorial(SIZE) // len(expected)))
    torch.testing.assert_close(drawn.sort().values, torch.tensor(repeated, dtype=torch.float64))


def test_a_first_position_that_is_not_scored_constrains_nothing():
    times = torch.rand(5, SIZE, generator=torch.Generator().manual_seed(0)).double()
    for first in (Role.GIVEN, Role.ABSENT, Role.CUT):
        roles = torch.tensor([first, Role.SCORED, Role.SCORED, Role.ABSENT])
        for rest in (None, 2, EqualChunks(2)):
            constrained = reveal_steps(times, FirstFirst(rest), roles)
            free = reveal_steps(times, rest, roles)
            steps = torch.where(roles == Role.SCORED, constrained - 1, constrained)
            assert torch.equal(steps, free)


def test_blocks_of_one_position_have_one_order():
    table = torch.tensor([[-1.5], [0.0]])
    assert exact_log_likelihoods(table, [FirstFirst(), FirstFirst(2)]).tolist() == [-1.5, -1.5]
    assert exact_elbo(table, FirstFirst()).item() == -1.5


def test_names_are_read_back():
    regimes = list_regimes(4, chunks=[2], first_first=True)
    names = [regime.name for regime in regimes]
    assert names == ["nfe_1_first", "nfe_2_first", "nfe_4_first", "ao_arm_first", "chunks_2_first"]
    assert tuple(map(Regime.parse, names)) == regimes
    assert headline(names) == "ao_arm_first"
    assert not Regime(FirstFirst(1)).is_random
    with pytest.raises(ValueError, match="regime: expected ao_arm"):
        Regime.parse("ao_arm_first_first")


def test_constrained_and_free_regimes_do_not_mix():
    with pytest.raises(ValueError, match="expected all of them FirstFirst or none"):
        exact_log_likelihoods(torch.tensor(oracles.random_table(0, 2)), [None, FirstFirst()])
    with pytest.raises(ValueError, match="elbo_seeds: expected 0 for a model whose blocks begin"):
        Plan(Protocol(elbo_seeds=2), 4, first_first=True)
