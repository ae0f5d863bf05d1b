"""Linear maps: the values and gradients of torch's own, whichever library multiplies."""

import pytest
import torch
import torch.nn.functional as F

from tube_lightning.networks import products
from tube_lightning.networks.products import linear, linear_gelu

SHAPES = [((5,), 3, 7), ((1,), 16, 16), ((0,), 4, 6), ((2, 3), 8, 5), ((300,), 128, 257)]


def example(tokens, dim, features, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((*tokens, dim), (features, dim), (features,))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@pytest.mark.parametrize(("tokens", "dim", "features"), SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_are_those_of_float64(tokens, dim, features, with_bias):
    x, weight, bias = example(tokens, dim, features)
    bias = bias if with_bias else None
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    rounding = 1e-6 * dim**0.5 * 4
    assert linear(x, weight, bias).dtype == torch.float32
    torch.testing.assert_close(linear(x, weight, bias).double(), exact, atol=rounding, rtol=1e-5)
    torch.testing.assert_close(
        linear_gelu(x, weight, bias).double(),
        F.gelu(exact, approximate="tanh"),
        atol=rounding,
        rtol=1e-5,
    )


@pytest.mark.parametrize(("tokens", "dim", "features"), SHAPES)
@pytest.mark.parametrize("function", [linear, linear_gelu])
def test_gradients_are_those_of_float64(tokens, dim, features, function):
    inputs = [t.requires_grad_() for t in example(tokens, dim, features)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    ours, theirs = function(*inputs), F.linear(*exact)
    if function is linear_gelu:
        theirs = F.gelu(theirs, approximate="tanh")
    pull = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    ours.backward(pull)
    theirs.backward(pull.double())
    for mine, wanted in zip(inputs, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), wanted.grad, atol=2e-4, rtol=1e-5)


@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_only_gradients_that_are_asked_for(asked):
    inputs = [t.requires_grad_(i in asked) for i, t in enumerate(example((5,), 3, 7))]
    linear(*inputs).sum().backward()
    assert [i for i, t in enumerate(inputs) if t.grad is not None] == list(asked)


def test_strided_inputs_are_read_as_they_are():
    x, weight, bias = example((6,), 8, 10)
    torch.testing.assert_close(
        linear(x.mT.contiguous().mT, weight.mT.contiguous().mT, bias), F.linear(x, weight, bias)
    )
    torch.testing.assert_close(linear(x[::2, 1:5], weight[:, 1:5]), x[::2, 1:5] @ weight[:, 1:5].mT)


@pytest.mark.parametrize("function", [linear, linear_gelu])
@pytest.mark.parametrize("gradient", [True, False])
def test_a_bias_of_any_stride(function, gradient):
    x, weight, bias = example((6,), 8, 10)
    for strided in (bias[:1].expand(10), bias.repeat_interleave(2)[::2]):
        there = strided.clone()
        x.requires_grad_(gradient)
        torch.testing.assert_close(function(x, weight, strided), function(x, weight, there))


def test_weights_that_are_elsewhere_are_not_read_as_the_cpus():
    x, weight, bias = example((6,), 8, 10)
    for parameters in ((weight.to("meta"), bias), (weight, bias.to("meta"))):
        assert not products._by_onednn(x, *parameters)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_onednn_does_not_take_is_torchs(dtype, monkeypatch):
    x, weight, bias = example((5,), 3, 7, dtype)
    if dtype == torch.float32:
        monkeypatch.setattr(products, "_has_onednn", lambda: False)
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


def test_autocast_keeps_its_say():
    with torch.autocast("cpu", dtype=torch.float16):
        assert linear(*example((5,), 3, 7)).dtype == torch.float16
