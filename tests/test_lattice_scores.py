"""Look-ups of log p(x | order) in a table, and the average of what they give."""

import itertools

import oracles
import pytest
import torch

from tube_lightning.lattice import exact_log_likelihood, score_orderings, score_partitions
from tube_lightning.orderings import EqualChunks, all_orderings, reveal_times

REL = 1e-13


def tables(*seeds, size):
    """Return random tables, NaN where a position is in the set."""
    return [oracles.random_table(seed, size) for seed in seeds]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def all_times(size):
    """List one vector of reveal times for every order."""
    return tensor([[(rank + 0.5) / size for rank in ranks] for ranks in oracles.orders(size)])


def log_mean(scores):
    return float(oracles.elbo_k(scores.tolist()))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_scores_of_orderings(size):
    (table,) = tables(1, size=size)
    want = [float(score) for score in oracles.scores(table, oracles.orders(size))]
    for draws in (all_orderings(size), all_times(size)):
        assert score_orderings(tensor(table), draws).tolist() == pytest.approx(want, rel=REL)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_scores_of_random_steps(steps):
    (table,) = tables(2, size=4)
    times = reveal_times(0, [5], num_orderings=40, size=4)[0, 0]
    want = [
        float(oracles.score(table, [int(time * steps) for time in row])) for row in times.tolist()
    ]
    assert score_orderings(tensor(table), times, steps).tolist() == pytest.approx(want, rel=REL)


@pytest.mark.parametrize(("steps", "sizes"), [(1, [5]), (2, [3, 2]), (3, [2, 2, 1]), (9, [1] * 5)])
def test_scores_of_chunks(steps, sizes):
    (table,) = tables(3, size=5)
    want = [float(score) for score in oracles.scores(table, oracles.chunkings(5, sizes))]
    for draws in (all_orderings(5), all_times(5)):
        scores = score_orderings(tensor(table), draws, EqualChunks(steps))
        assert scores.tolist() == pytest.approx(want, rel=REL)


def test_consistent_model_scores_every_ordering_alike():
    table, log_p = oracles.consistent_table(6, size=5)
    scores = score_orderings(tensor(table), all_orderings(5)).tolist()
    assert scores == pytest.approx([log_p] * 120, rel=REL)


@pytest.mark.parametrize("steps", [None, EqualChunks(2), EqualChunks(4)])
def test_mean_over_all_orderings_is_exact(steps):
    (table,) = tables(4, size=5)
    scores = score_orderings(tensor(table), all_orderings(5), steps)
    exact = exact_log_likelihood(tensor(table), steps).item()
    assert log_mean(scores) == pytest.approx(exact, rel=REL)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_mean_over_all_step_assignments_is_exact(steps):
    (table,) = tables(5, size=4)
    times = (tensor(list(itertools.product(range(steps), repeat=4))) + 0.5) / steps
    scores = score_orderings(tensor(table), times, steps)
    exact = exact_log_likelihood(tensor(table), steps).item()
    assert log_mean(scores) == pytest.approx(exact, rel=REL)


def test_leading_axes_broadcast():
    """Own draws for each table, the same for all, and many draws for one table."""
    table = tensor(tables(*range(6), size=3)).view(2, 3, 8, 3)
    draws = reveal_times(1, [0, 1], [0, 1, 2], num_orderings=5, size=3)
    for steps in (None, 2, EqualChunks(2)):
        own = score_orderings(table, draws, steps)
        shared = score_orderings(table, draws[1, 2], steps)
        single = score_orderings(table[0, 1], draws, steps)
        assert own.shape == shared.shape == single.shape == (2, 3, 5)
        for i, j in itertools.product(range(2), range(3)):
            assert torch.equal(own[i, j], score_orderings(table[i, j], draws[i, j], steps))
            assert torch.equal(shared[i, j], score_orderings(table[i, j], draws[1, 2], steps))
            assert torch.equal(single[i, j], score_orderings(table[0, 1], draws[i, j], steps))
    own = score_partitions(table, draws, 2)
    shared = score_partitions(table, draws[1, 2], 2)
    for i, j in itertools.product(range(2), range(3)):
        assert torch.equal(own[i, j], score_partitions(table[i, j], draws[i, j], 2))
        assert torch.equal(shared[i, j], score_partitions(table[i, j], draws[1, 2], 2))


def test_no_blocks_have_no_scores():
    table, draws = torch.zeros(0, 8, 3), torch.zeros(0, 5, 3)
    assert score_orderings(table, draws).shape == (0, 5)
    assert score_partitions(table, draws, 2).shape == (0, 5)


def test_groups_of_one_are_orderings():
    table = tensor(tables(8, size=5)[0])
    times = reveal_times(0, [3], num_orderings=20, size=5)[0, 0]
    got = score_partitions(table, times, 1)
    torch.testing.assert_close(got, score_orderings(table, times), rtol=REL, atol=0)


@pytest.mark.parametrize("group_size", [4, 5, 30])
def test_a_group_of_all_is_exact(group_size):
    table = tensor(tables(9, size=4)[0])
    times = reveal_times(0, [4], num_orderings=6, size=4)[0, 0]
    want = exact_log_likelihood(table).expand(6)
    torch.testing.assert_close(score_partitions(table, times, group_size), want, rtol=REL, atol=0)


@pytest.mark.parametrize("group_size", [2, 3, 4])
def test_partitions_average_the_orders_inside_groups(group_size):
    (table,) = tables(10, size=5)
    ranks = [3, 0, 4, 1, 2]
    same_groups = [
        other
        for other in oracles.orders(5)
        if all(a // group_size == b // group_size for a, b in zip(ranks, other, strict=True))
    ]
    want = float(oracles.elbo_k(oracles.scores(table, same_groups)))
    times = tensor([[rank / 5 for rank in ranks]])
    assert score_partitions(tensor(table), times, group_size).item() == pytest.approx(want, rel=REL)


@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 5])
def test_partitions_are_unbiased(size, group_size):
    """Averaged over all orders they give p exactly, divisor of the size or not."""
    table = tensor(tables(11, size=size)[0])
    scores = score_partitions(table, all_times(size), group_size)
    assert log_mean(scores) == pytest.approx(exact_log_likelihood(table).item(), rel=REL)
