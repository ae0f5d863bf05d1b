"""The distinct sets that a collection of draws needs, against brute force."""

import itertools

import oracles
import pytest
import torch

from tube_lightning.orderings import (
    NEVER,
    EqualChunks,
    all_orderings,
    all_sets,
    decode_sets,
    distinct_sets,
    encode_sets,
    reveal_steps,
    reveal_times,
    set_codes,
    unique_sets,
)

SCORED, GIVEN, ABSENT = 0, 1, 2


def is_scored(step):
    return 0 <= step < NEVER


def visible_before(steps, position):
    """Return what is revealed before a position's step; the given ones for an unscored one."""
    if is_scored(steps[position]):
        return frozenset(oracles.set_before(steps, position))
    return frozenset(d for d, step in enumerate(steps) if step < 0)


def check_by_hand(sets, regimes):
    """Compare all fields with loops over every (regime, block, draw, position)."""
    rows = [frozenset(r.nonzero().flatten().tolist()) for r in sets.revealed]
    blocks = sets.block.tolist()
    used, needed = set(), set()
    assert len(sets.index) == len(regimes)
    for index, steps in zip(sets.index, regimes, strict=True):
        assert index.shape == steps.shape
        for b, k in itertools.product(range(steps.shape[0]), range(steps.shape[1])):
            row_of, draw = index[b, k].tolist(), steps[b, k].tolist()
            for d, row in enumerate(row_of):
                assert blocks[row] == b
                assert rows[row] == visible_before(draw, d)
                used.add(row)
                if is_scored(draw[d]):
                    needed.add((row, d))
    assert len(set(zip(blocks, rows, strict=True))) == len(rows)
    assert used == set(range(len(rows)))
    assert {tuple(pair) for pair in sets.needed.nonzero().tolist()} == needed
    assert blocks == sorted(blocks)


def regimes_of(times, roles=None):
    return [reveal_steps(times, steps, roles) for steps in (None, 1, 2, 5, EqualChunks(2))]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 59, 60, 62, 70])
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_distinct_sets_by_hand(size, num_blocks):
    """Sets as integers up to 62 bits with the block's number, as rows of bits above."""
    times = reveal_times(0, [0], range(num_blocks), num_orderings=4, size=size)[0]
    regimes = regimes_of(times)
    check_by_hand(distinct_sets(*regimes), regimes)


@pytest.mark.parametrize("padding", [0, 66])
def test_distinct_sets_with_roles_by_hand(padding):
    """All 81 combinations of roles of four positions, alone and before absent ones."""
    roles = torch.tensor(list(itertools.product((SCORED, GIVEN, ABSENT), repeat=4)))
    roles = torch.nn.functional.pad(roles, (0, padding), value=ABSENT)
    times = reveal_times(0, [1], range(81), num_orderings=3, size=4 + padding)[0]
    regimes = regimes_of(times, roles[:, None])
    check_by_hand(distinct_sets(*regimes), regimes)


def test_steps_add_no_row_to_the_orderings():
    times = reveal_times(0, [2], range(3), num_orderings=5, size=8)[0]
    orderings, *others = regimes_of(times)
    alone, together = distinct_sets(orderings), distinct_sets(orderings, *others)
    assert torch.equal(alone.revealed, together.revealed)
    assert torch.equal(alone.block, together.block)
    assert torch.equal(alone.index[0], together.index[0])
    assert together.needed.sum() > alone.needed.sum()


def test_all_orderings_need_all_sets_but_the_full_one():
    sets = distinct_sets(reveal_steps(all_orderings(5))[None])
    assert torch.equal(sets.revealed, all_sets(5)[:-1])
    assert torch.equal(sets.needed, ~all_sets(5)[:-1])


def test_one_step_needs_one_set():
    times = reveal_times(0, [3], range(4), num_orderings=6, size=5)[0]
    sets = distinct_sets(reveal_steps(times, 1))
    assert sets.block.tolist() == [0, 1, 2, 3]
    assert not sets.revealed.any()
    assert sets.needed.all()


def test_no_regime():
    with pytest.raises(ValueError, match=r"regimes: expected .* got none"):
        distinct_sets()


@pytest.mark.parametrize("size", [1, 3, 6])
def test_codes_of_all_sets_round_trip(size):
    sets = all_sets(size)
    assert sets.shape == (2**size, size)
    for code, row in enumerate(sets.tolist()):
        assert sum(2**d for d, revealed in enumerate(row) if revealed) == code
    assert torch.equal(decode_sets(torch.arange(2**size), size), sets)
    assert torch.equal(encode_sets(sets), torch.arange(2**size))


@pytest.mark.parametrize("size", [2, 5, 62])
def test_codes_by_hand(size):
    times = reveal_times(0, [4], range(3), num_orderings=4, size=size)[0]
    roles = torch.tensor([GIVEN, SCORED, *[SCORED] * (size - 2)])
    for steps in regimes_of(times) + regimes_of(times, roles.expand(3, 1, size)):
        codes = set_codes(steps)
        decoded = decode_sets(codes, size)
        for b, k, d in itertools.product(range(3), range(4), range(size)):
            want = visible_before(steps[b, k].tolist(), d)
            assert codes[b, k, d].item() == sum(2**e for e in want)
            assert set(decoded[b, k, d].nonzero().flatten().tolist()) == want


def test_codes_of_blocks_that_do_not_fit():
    with pytest.raises(ValueError, match="at most 62 positions, got 63"):
        set_codes(torch.arange(63))
    with pytest.raises(ValueError, match="at most 62 positions, got 63"):
        encode_sets(torch.zeros(1, 63, dtype=torch.bool))


@pytest.mark.parametrize("size", [1, 3, 59, 62, 70])
@pytest.mark.parametrize("num_entries", [0, 1, 40])
def test_unique_sets_by_hand(size, num_entries):
    """Entries repeat in any order; rows come once each, by block, and each entry finds its own."""
    distinct = reveal_times(0, [5], num_orderings=7, size=size)[0, 0] < 0.5
    entries = torch.arange(num_entries)
    given_block, given_sets = entries * 3 % 5, distinct[entries * 5 % 7]
    block, revealed, row = unique_sets(given_block, given_sets)
    assert row.shape == (num_entries,)
    assert torch.equal(block[row], given_block)
    assert torch.equal(revealed[row], given_sets)
    assert set(row.tolist()) == set(range(len(block)))
    assert len({(b, *r) for b, r in zip(block.tolist(), revealed.tolist(), strict=True)}) == len(
        block
    )
    assert block.tolist() == sorted(block.tolist())
