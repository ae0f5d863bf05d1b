"""Steps of every regime from one draw, for scored, given and absent positions."""

import itertools
import math
from collections import Counter

import pytest
import torch

from tube_lightning.orderings import (
    ALREADY,
    NEVER,
    EqualChunks,
    all_orderings,
    partition_steps,
    reveal_steps,
    reveal_times,
)

SCORED, GIVEN, ABSENT = 0, 1, 2
REGIMES = [None, 1, 2, 3, 8, 1000, EqualChunks(1), EqualChunks(2), EqualChunks(3), EqualChunks(20)]


def chunk_sizes(num_positions, num_chunks):
    """Deal the positions to the chunks one by one."""
    sizes = [0] * num_chunks
    for position in range(num_positions):
        sizes[position % num_chunks] += 1
    return sizes


def steps_by_hand(times, regime, roles):
    scored = sorted((time, d) for d, time in enumerate(times) if roles[d] == SCORED)
    steps = [ALREADY if role == GIVEN else NEVER for role in roles]
    sizes = chunk_sizes(len(scored), regime.number) if isinstance(regime, EqualChunks) else []
    chunk_of_rank = [chunk for chunk, size in enumerate(sizes) for _ in range(size)]
    for rank, (time, d) in enumerate(scored):
        if regime is None:
            steps[d] = rank
        elif isinstance(regime, int):
            steps[d] = math.floor(time * regime)
        else:
            steps[d] = chunk_of_rank[rank]
    return steps


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_steps_by_hand(size, regime):
    times = reveal_times(0, [1], num_orderings=20, size=size)[0, 0]
    want = [steps_by_hand(row, regime, [SCORED] * size) for row in times.tolist()]
    assert reveal_steps(times, regime).tolist() == want


@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_roles_by_hand(regime):
    """All 81 combinations of roles of four positions; given before all, absent after all."""
    roles = list(itertools.product((SCORED, GIVEN, ABSENT), repeat=4))
    times = reveal_times(0, [2], range(81), num_orderings=5, size=4)[0]
    got = reveal_steps(times, regime, torch.tensor(roles)[:, None])
    for block, block_roles in enumerate(roles):
        for draw, row in enumerate(times[block].tolist()):
            want = steps_by_hand(row, regime, block_roles)
            assert got[block, draw].tolist() == want


def test_roles_of_orderings():
    """Ranks count the scored positions only, whatever order the others have in the draw."""
    roles = torch.tensor([GIVEN, SCORED, SCORED, ABSENT])
    for order, steps in zip(
        all_orderings(4).tolist(), reveal_steps(all_orderings(4), None, roles[None]), strict=True
    ):
        first = int(order.index(1) > order.index(2))
        assert steps.tolist() == [ALREADY, first, 1 - first, NEVER]


def test_orderings_are_inverted():
    for order, steps in zip(all_orderings(4), reveal_steps(all_orderings(4)), strict=True):
        assert [steps[d].item() for d in order] == [0, 1, 2, 3]


@pytest.mark.parametrize("regime", [None, EqualChunks(2), EqualChunks(3)])
def test_times_and_their_ordering_agree(regime):
    times = reveal_times(0, [3], num_orderings=30, size=5)[0, 0]
    assert torch.equal(reveal_steps(times.argsort(dim=-1), regime), reveal_steps(times, regime))


def test_steps_never_split_the_ordering():
    """What is revealed before a step of any regime is a prefix of the ordering."""
    times = reveal_times(0, [4], num_orderings=50, size=6)[0, 0]
    ranks = reveal_steps(times).tolist()
    for regime in REGIMES:
        for rank, step in zip(ranks, reveal_steps(times, regime).tolist(), strict=True):
            by_rank = [step[rank.index(r)] for r in range(6)]
            assert by_rank == sorted(by_rank)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [1, 3, 7, 1000])
def test_the_last_time_is_in_the_last_step(dtype, steps):
    """Rounding must not lift the largest time below one to T, which is no step."""
    latest = torch.nextafter(torch.ones(1, dtype=dtype), torch.zeros(1, dtype=dtype))
    assert reveal_steps(latest, steps).item() == steps - 1
    assert reveal_steps(torch.zeros(1, dtype=dtype), steps).item() == 0


@pytest.mark.parametrize("num_positions", [1, 4, 5, 16])
@pytest.mark.parametrize("num_chunks", [1, 2, 3, 4, 17])
def test_chunks_are_as_equal_as_can_be(num_positions, num_chunks):
    want = [size for size in chunk_sizes(num_positions, num_chunks) if size]
    assert list(EqualChunks(num_chunks).sizes(num_positions)) == want


@pytest.mark.parametrize("value", [1.0, -0.25, math.nan, math.inf])
def test_times_outside_the_unit_interval(value):
    with pytest.raises(ValueError, match=rf"^draws: .* got {value}$"):
        reveal_steps(torch.tensor([0.5, value]))


@pytest.mark.parametrize("row", [[0, 0, 1], [1, 2, 3], [-1, 0, 1]])
def test_rows_that_are_no_ordering(row):
    with pytest.raises(ValueError, match=r"^draws: .* permutations of 0\.\.2, got") as error:
        reveal_steps(torch.tensor([[0, 1, 2], row]))
    assert str(error.value).endswith(str(row))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16])
def test_draws_of_another_kind(dtype):
    with pytest.raises(ValueError, match=rf"^draws: .* got {dtype}$"):
        reveal_steps(torch.zeros(1, dtype=dtype))


@pytest.mark.parametrize("steps", [0, -1])
def test_no_steps(steps):
    with pytest.raises(ValueError, match=rf"^steps: .* got {steps}$"):
        reveal_steps(torch.zeros(3), steps)


def test_an_ordering_has_no_random_steps():
    with pytest.raises(ValueError, match="steps: 3 random steps need reveal times"):
        reveal_steps(all_orderings(3), 3)


ROLES = [
    (SCORED,) * 5,
    (GIVEN, SCORED, SCORED, SCORED, SCORED),
    (GIVEN, SCORED, ABSENT, SCORED, SCORED),
    (SCORED, SCORED, ABSENT, ABSENT, ABSENT),
]


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 5, 40])
def test_partitions_list_the_orders_inside_each_group(group_size, roles):
    """Groups follow the draw; inside one, each order of its scored positions is equally often."""
    times = reveal_times(0, [6], num_orderings=7, size=5)[0, 0]
    steps, groups = partition_steps(times, group_size, torch.tensor(roles)[None])
    assert steps.shape == (7, math.factorial(min(group_size, 5)), 5)
    for row, orders, group in zip(times.tolist(), steps.tolist(), groups.tolist(), strict=True):
        ranks = steps_by_hand(row, None, roles)
        scored = [d for d in range(5) if roles[d] == SCORED]
        assert [group[d] for d in scored] == [ranks[d] // group_size for d in scored]
        for order in orders:
            assert [order[d] for d in range(5) if roles[d] != SCORED] == [
                ranks[d] for d in range(5) if roles[d] != SCORED
            ]
            by_step = sorted(scored, key=order.__getitem__)
            assert [group[d] for d in by_step] == sorted(group[d] for d in scored)
        for name in {group[d] for d in scored}:
            members = [d for d in scored if group[d] == name]
            counts = Counter(tuple(sorted(members, key=o.__getitem__)) for o in orders)
            assert len(counts) == math.factorial(len(members))
            assert len(set(counts.values())) == 1
