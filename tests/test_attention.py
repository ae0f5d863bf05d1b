"""Shared-prefix attention by matmuls, tiles for the kernel, and the choice between them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention_cases import Case, attend_plainly, cases
from tests.networks import random_network, random_tokens
from tests.watched_operators import WAITING, Watch
from tube_lightning.networks import (
    BlockDiffusion,
    NoisyRows,
    attend_densely,
    attention,
    default_attention,
    plan_grouped,
    plan_kernel,
)
from tube_lightning.networks.kernel_attention import _aligned
from tube_lightning.networks.tiles import TILES, choose_tile, cut_rows, fits_kernel
from tube_lightning.networks.trunk import Projections
from tube_lightning.scoring import conditional_table


@settings(max_examples=60, deadline=None)
@given(cases())
def test_grouped_matmuls_are_attention(case):
    inputs = case.inputs()
    attended = plan_grouped(case.rows(), case.clean_length)(*inputs)
    expected = attend_plainly(case, *inputs)
    torch.testing.assert_close(attended.double(), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("plan", [plan_grouped, plan_kernel])
def test_rows_without_clean_tokens_see_themselves(plan):
    case = Case(((0, 0), (0,)), 0, 40, kv_heads=2, group=2, width=8, layout="dense", seed=0)
    inputs = case.inputs()
    attended = plan(case.rows(), 0)(*inputs)
    expected = attend_plainly(case, *inputs)
    torch.testing.assert_close(attended.double(), expected, atol=5e-6, rtol=0)


def test_dense_attention_shares_keys_between_heads():
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 5, 6, 8, generator=generator)
    keys, values = torch.randn(2, 2, 5, 3, 8, generator=generator)
    shared = attend_densely(queries, keys, values, causal=True)
    repeated = (t.repeat_interleave(2, dim=2) for t in (keys, values))
    assert torch.equal(shared, attend_densely(queries, *repeated, causal=True))


def test_grouped_matmuls_have_the_gradients_of_attention():
    case = Case(((0, 3, 9), (7,)), 9, 2, kv_heads=2, group=2, width=8, layout="dense", seed=0)
    own, keys, values = case.inputs(torch.float64)

    def attend(queries, own_keys, own_values, *clean):
        return plan_grouped(case.rows(), 9)(Projections(queries, own_keys, own_values), *clean)

    leaves = [t.detach().requires_grad_() for t in (*own, keys, values)]
    assert torch.autograd.gradcheck(attend, leaves, fast_mode=True)


# Tiles


@settings(max_examples=100, deadline=None)
@given(cases(), st.sampled_from([1, 2, 5, 16]))
def test_every_row_is_in_one_tile_with_rows_of_its_sequence(case, rows_per_tile):
    rows = case.rows()
    with Watch() as watch:
        cut = cut_rows(rows, len(case.starts), rows_per_tile)
    assert watch.names.isdisjoint(WAITING)
    tiles = [
        range(first, last)
        for first, last in zip(cut.first.tolist(), cut.last.tolist(), strict=True)
        if first < last
    ]
    assert [row for tile in tiles for row in tile] == list(range(len(rows.start)))
    for tile in tiles:
        assert len(tile) <= rows_per_tile
        assert len({int(rows.sequence[row]) for row in tile}) == 1
    assert cut.sequence.tolist() == rows.sequence.tolist()
    assert cut.start.tolist() == rows.start.tolist()


@pytest.mark.parametrize("plan", [plan_grouped, plan_kernel])
@pytest.mark.parametrize(
    ("sequence", "start", "message"),
    [
        ([0, 1, 0], [0, 0, 0], "in order in each of them, got sequence 0 at 0 after 1 at 0"),
        ([0, 0, 1], [4, 0, 0], "in order in each of them, got sequence 0 at 0 after 0 at 4"),
        ([-1, 0, 1], [0, 0, 0], "in order in each of them, got sequence -1 at 0 after 0 at 0"),
        ([0, 0, 1], [0, 4, 9], "at most 8 clean tokens before a row, got 9"),
    ],
)
def test_rows_that_are_not_what_they_promise_are_refused(sequence, start, message, plan):
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    rows = NoisyRows(torch.tensor(sequence), torch.tensor(start), nothing.long(), nothing, nothing)
    with pytest.raises(ValueError, match=message):
        plan(rows, 8)


def test_rows_of_no_sequence_are_refused_before_a_launch():
    case = Case(((0,), (), (3,)), 9, 2, kv_heads=1, group=1, width=8, layout="dense", seed=0)
    own, keys, values = case.inputs()
    with pytest.raises(ValueError, match="expected 2 sequences, got number 2"):
        plan_kernel(case.rows(), 9)(own, keys[:2], values[:2])


def test_there_is_a_tile_for_every_usual_head():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for width in (*range(1, 65), 80, 96, 128, 192, 256):
            assert fits_kernel(dtype, width)
    assert not fits_kernel(torch.float64, 64)
    assert not fits_kernel(torch.float32, 257)


def test_few_queries_take_small_tiles():
    for half, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        for width, tiles in TILES[half].items():
            sizes = [tile.queries for tile in tiles]
            assert sizes == sorted(sizes)
            assert choose_tile(dtype, width, 1) == tiles[0]
            assert choose_tile(dtype, width, 10_000) == tiles[-1]
            for tile in tiles:
                assert choose_tile(dtype, width, tile.queries) == tile


@pytest.mark.parametrize("strides", [(2**32, 16, 64, 1), (64, 2**29, 16, 1), (64, 16, 2**30, 1)])
def test_offsets_in_a_row_fit_into_32_bits(strides):
    tensor = torch.empty_strided((2, 4, 3, 16), strides, device="meta")
    aligned = _aligned(tensor)
    assert max(s * n for s, n in zip(aligned.stride()[1:], aligned.shape[1:], strict=True)) < 2**31
    assert (aligned is tensor) == (strides[0] == 2**32)  # rows are counted in 64 bits


# The choice


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    """No kernel was launched yet."""
    monkeypatch.setattr(attention, "_proven", set())
    monkeypatch.setattr(attention, "_given_up", set())


def test_the_device_decides(monkeypatch):
    monkeypatch.setattr(attention, "find_spec", lambda name: name)
    assert default_attention(torch.device("cuda", 1)) is plan_kernel
    assert default_attention(torch.device("cpu")) is plan_grouped
    assert default_attention(torch.device("mps")) is plan_grouped
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    assert default_attention(torch.device("cuda")) is plan_grouped


def test_a_kernel_that_cannot_start_gives_way_with_one_warning():
    """Here there is no GPU, or not even Triton: the launch really fails."""
    network, tokens = random_network(4), random_tokens(2)
    model = BlockDiffusion(network.config, network.fold().freeze(), plan_kernel)
    with pytest.warns(UserWarning, match="attention on cpu: our kernel .* going on by") as told:
        table = conditional_table(model, tokens, token_budget=100)
    assert len(told) == 1
    assert torch.equal(
        table, conditional_table(BlockDiffusion.from_network(network), tokens, token_budget=100)
    )


def test_what_has_no_kernel_takes_matmuls_without_a_word():
    case = Case(((0, 3), (7,)), 9, 2, kv_heads=2, group=1, width=8, layout="dense", seed=0)
    own, keys, values = case.inputs(torch.float64)  # no kernel for that
    attended = plan_kernel(case.rows(), 9)(own, keys, values)
    torch.testing.assert_close(attended, attend_plainly(case, own, keys, values))
    for number in range(5):
        own, keys, values = case.inputs()
        asks = [*own, keys, values][number].requires_grad_()
        plan_kernel(case.rows(), 9)(own, keys, values).sum().backward()
        assert asks.grad is not None
    own, keys, values = case.inputs()
    own = own._replace(values=own.values.half())
    with torch.autocast("cpu", dtype=torch.float16):
        attended = plan_kernel(case.rows(), 9)(own, keys, values.half())
    expected = attend_plainly(case, own, keys, values.half())
    torch.testing.assert_close(attended.double(), expected, atol=1e-2, rtol=0)
