"""The head, both ways to cut it, and the precision that it keeps."""

import os
import subprocess
import sys

import pytest
import torch

from tests.watched_operators import WAITING, Watch
from tube_lightning.networks import head
from tube_lightning.networks.precision import own_precision

VOCAB, DIM = 3001, 8
CUDA = torch.device("cuda")


def problem(num_tokens):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, DIM, generator=generator)
    weight = torch.randn(VOCAB, DIM, generator=generator)
    bias = torch.randn(VOCAB, generator=generator)
    bias[-1] = -torch.inf  # the mask token
    return hidden, (weight, bias), torch.randint(0, VOCAB - 1, (num_tokens,), generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_tokens", [0, 1, 7, 100])
@pytest.mark.parametrize("way", ["_by_vocabulary", "_by_tokens"])
def test_both_ways_are_the_log_softmax_and_hold_few_logits(way, num_tokens, dtype, monkeypatch):
    monkeypatch.setattr(head, "_CACHED_LOGITS", 2048)
    monkeypatch.setattr(head, "HELD_LOGITS", 10 * VOCAB)
    hidden, weights, targets = problem(num_tokens)
    weights = tuple(t.to(dtype) for t in weights)
    with Watch() as watch:
        found = getattr(head, way)(hidden, weights, targets)
    logits = torch.nn.functional.linear(*(t.double() for t in (hidden, *weights)))
    expected = logits.log_softmax(dim=-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    pieces = {"_by_vocabulary": 1024 * num_tokens, "_by_tokens": 10 * VOCAB}
    assert watch.largest <= max(pieces[way], VOCAB * DIM)
    assert watch.names.isdisjoint(WAITING)
    assert found.dtype == torch.float32


def test_the_device_decides(monkeypatch):
    monkeypatch.setattr(head, "_by_tokens", lambda *_: pytest.fail("on a CPU"))
    assert head.token_log_probs(*problem(5)).shape == (5,)


def test_autocast_changes_nothing():
    expected = head.token_log_probs(*problem(20))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(head.token_log_probs(*problem(20)), expected)


def products():
    """How products of fp32 are set, by both of torch's ways to say it."""
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.mkldnn.matmul.fp32_precision,
    )


@pytest.fixture
def _as_before():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("setting", ["high", "medium", "highest"])
def test_no_tf32_inside_and_all_as_it_was_after(setting):
    torch.set_float32_matmul_precision(setting)
    before = products()
    with own_precision(CUDA):
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
    assert products() == before
    with pytest.raises(KeyError), own_precision(CUDA):
        raise KeyError
    assert products() == before
    with own_precision(torch.device("cpu")):
        assert products() == before


def test_containers_that_switch_tf32_on_are_overruled():
    """The variable is read when torch starts."""
    code = (
        "import torch; from tube_lightning.networks.precision import own_precision\n"
        "assert torch.backends.cuda.matmul.allow_tf32\n"
        "with own_precision(torch.device('cuda')):\n"
        "    assert not torch.backends.cuda.matmul.allow_tf32\n"
        "assert torch.backends.cuda.matmul.allow_tf32\n"
    )
    environment = {**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
