"""The numbers of the attention kernel, in Triton's interpreter: its own code on CPU tensors.

``tests/test_kernel.py`` runs this file in a process with TRITON_INTERPRET=1, which Triton reads on
import.
"""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import example, given, settings
from triton.runtime import interpreter

from tests.attention_cases import Case, attend_plainly, cases
from tests.networks import LENGTH, random_network, random_tokens
from tests.test_scoring import naive_table, some_sets
from tube_lightning.networks import (
    BlockDiffusion,
    attention,
    plan_grouped,
    plan_kernel,
    prefix_kernel,
)
from tube_lightning.networks.kernel_attention import plan_launches
from tube_lightning.orderings import block_roles
from tube_lightning.scoring import conditional_table

HALF = {torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    """No kernel was launched yet."""
    monkeypatch.setattr(attention, "_proven", set())
    monkeypatch.setattr(attention, "_given_up", set())


@pytest.fixture(autouse=True)
def _products_of_bfloat16(monkeypatch):
    """The interpreter keeps bf16 as its bits and multiplies those: widen them first."""
    dot = interpreter.InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return dot(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


def one_case(**changes):
    case = Case(
        starts=((0, 0, 4, 8, 8), (4,), (), (8, 12)),
        clean_length=12,
        size=4,
        kv_heads=2,
        group=1,
        width=8,
        layout="dense",
        seed=0,
    )
    return replace(case, **changes)


@settings(max_examples=25, deadline=None)
@given(cases())
@example(one_case(size=16, width=64))
@example(one_case(starts=((0, 30),), clean_length=40, size=70, width=16))  # longer than a tile
@example(one_case(starts=((65,) * 20,), clean_length=65, size=8))  # several tiles, two of keys
def test_the_kernel_is_attention(case):
    inputs = case.inputs()
    attended = plan_launches(case.rows(), case.clean_length)(*inputs)
    grouped = plan_grouped(case.rows(), case.clean_length)(*inputs)
    torch.testing.assert_close(attended, grouped, atol=5e-6, rtol=0)
    expected = attend_plainly(case, *inputs)
    torch.testing.assert_close(attended.double(), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("width", [12, 64])
def test_the_kernel_in_half_precision(dtype, width):
    case = one_case(width=width, group=2)
    inputs = case.inputs(dtype)
    attended = plan_launches(case.rows(), case.clean_length)(*inputs)
    assert attended.dtype == dtype
    expected = attend_plainly(case, *inputs)
    torch.testing.assert_close(attended.double(), expected, atol=HALF[dtype], rtol=0)


@pytest.mark.parametrize("width", [32, 128, 256])
def test_wide_heads(width):
    case = one_case(width=width)
    attended = plan_launches(case.rows(), case.clean_length)(*case.inputs())
    expected = attend_plainly(case, *case.inputs())
    torch.testing.assert_close(attended.double(), expected, atol=5e-6, rtol=0)


def test_large_scores_neither_overflow_nor_vanish():
    case = one_case()
    own, keys, values = case.inputs()
    own = own._replace(queries=own.queries * 300)
    attended = plan_launches(case.rows(), case.clean_length)(own, keys, values)
    expected = attend_plainly(case, own, keys, values)
    torch.testing.assert_close(attended.double(), expected, atol=1e-3, rtol=0)


def kernel_model(network):
    return BlockDiffusion(network.config, network.fold().freeze(), plan_kernel)


@pytest.mark.filterwarnings("error")  # it gives way with a warning
@pytest.mark.parametrize(
    ("block_size", "length", "num_given"), [(1, 9, 0), (4, 24, 0), (4, 14, 1), (16, 17, 5)]
)
def test_table_equals_naive_forward(block_size, length, num_given):
    network = random_network(block_size)
    tokens, sets = random_tokens(2, length), some_sets(block_size, count=4)
    roles = block_roles(length, block_size, num_given)
    table = conditional_table(
        kernel_model(network), tokens, sets, roles=roles, token_budget=20 * block_size
    )
    expected = naive_table(network, tokens, sets, roles)
    torch.testing.assert_close(table, expected, atol=1e-5, rtol=0)
    assert attention._proven or length <= block_size


@pytest.mark.filterwarnings("error")
def test_a_full_sequence_model_needs_no_kernel():
    network = random_network(LENGTH, cross_attn=False)
    tokens, sets = random_tokens(2), some_sets(LENGTH, count=4)
    table = conditional_table(kernel_model(network), tokens, sets)
    expected = naive_table(network, tokens, sets, block_roles(LENGTH, LENGTH, 0))
    torch.testing.assert_close(table, expected, atol=1e-5, rtol=0)
    assert not attention._proven


# First use


def broken_kernel(folder, old, new):
    """The kernel with one thing changed in its source."""
    source = Path(prefix_kernel.__file__).read_text()
    assert source.count(old) == 1
    path = folder / "broken_kernel.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("broken_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.attend_to_prefix


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("key[None, :] < before[:, None]", "key[None, :] <= before[:, None]"),
        ("kv_head = head // group", "kv_head = head * 0"),
        ("row[:, None] == (key // size)[None, :]", "row[:, None] >= (key // size)[None, :]"),
        ("total = total * shrink +", "total = total +"),
        ("place * clean_value_sequence", "0 * clean_value_sequence"),
        ("tl.trans(k)", "k"),  # does not even run
    ],
)
def test_a_broken_kernel_gives_way_with_one_warning(old, new, tmp_path, monkeypatch):
    broken = broken_kernel(tmp_path, old, new)
    monkeypatch.setattr(prefix_kernel, "attend_to_prefix", broken)
    network, tokens = random_network(4), random_tokens(2, 12)
    sets = some_sets(4, count=4)
    with pytest.warns(UserWarning, match=r"attention on cpu: our kernel for torch.float32") as told:
        table = conditional_table(kernel_model(network), tokens, sets, token_budget=200)
    assert len(told) == 1
    expected = conditional_table(
        BlockDiffusion.from_network(network), tokens, sets, token_budget=200
    )
    assert torch.equal(table, expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("broken", range(5))
def test_inputs_that_are_no_numbers_are_not_the_kernels_fault(broken):
    case = one_case()
    own, keys, values = case.inputs()
    (*own, keys, values)[broken][0] = torch.nan
    attended = plan_kernel(case.rows(), case.clean_length)(own, keys, values)
    assert attended[:4].isnan().any()
    assert attended[-1].isfinite().all()  # another sequence
    assert not attention._given_up


def test_a_kind_of_launch_is_checked_once(monkeypatch):
    checks = []
    monkeypatch.setattr(attention, "_check", lambda *inputs: checks.append(inputs))
    for case in (one_case(), one_case(seed=1), one_case(width=12), one_case(size=2)):
        for _ in range(2):
            plan_kernel(case.rows(), case.clean_length)(*case.inputs())
    assert len(checks) == len(attention._proven) == 3


def test_memory_that_runs_out_is_not_the_kernels_fault(monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(attention, "_check", fail)
    case = one_case()
    with pytest.raises(torch.OutOfMemoryError):
        plan_kernel(case.rows(), case.clean_length)(*case.inputs())
    assert not attention._given_up
