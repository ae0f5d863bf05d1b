"""The demo checkpoints compute what was recorded of them, by the naive forward pass too."""

import functools
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from benchmarks.install_demo import NUM_ORDERINGS, install
from benchmarks.naive import _forward, _subs, two_stream_log_probs
from tests import oracles
from tube_lightning import data, demo
from tube_lightning.checkpoints import save_checkpoint
from tube_lightning.demo import DEMO_CHECKPOINTS, demo_checkpoint
from tube_lightning.networks import DiT, DiTConfig
from tube_lightning.orderings import reveal_times

EMBEDDED = Path(demo.__file__).parent
BLOCK_SIZES = {"bd3lm_l4": 4, "bd3lm_l8": 8, "bd3lm_l16": 16}
ARMS = ("arm", "arm_ft_l4")


def as_tokens(text):
    """By the library alone; id 0 ends a document."""
    file = Path(data.__file__).parent / "demo_text" / "tokenizer.json"
    return torch.tensor([[0, *Tokenizer.from_file(str(file)).encode(text).ids]])


def stored(folder):
    """The weights in fp32 and the number of heads; without adaLN, its gates are open."""
    state = {name: t.float() for name, t in load_file(folder / "model.safetensors").items()}
    n_heads = json.loads((folder / "config.json").read_text())["n_heads"]
    if "backbone.sigma_map.mlp.0.weight" in state:
        return state, n_heads
    dim = state["backbone.vocab_embed.embedding"].shape[1]
    one, zero = torch.ones(dim), torch.zeros(dim)
    blocks = {name.split(".")[2] for name in state if name.startswith("backbone.blocks.")}
    constants = {f"blocks.{b}": torch.cat([zero, zero, one] * 2) for b in blocks}
    for name, bias in (constants | {"output_layer": torch.cat([zero, zero])}).items():
        state[f"backbone.{name}.adaLN_modulation.weight"] = torch.zeros(len(bias), 1)
        state[f"backbone.{name}.adaLN_modulation.bias"] = bias
    for layer, width in (("0", 256), ("2", 1)):
        state[f"backbone.sigma_map.mlp.{layer}.weight"] = torch.zeros(1, width)
        state[f"backbone.sigma_map.mlp.{layer}.bias"] = torch.zeros(1)
    return state, n_heads


def arm_nats(folder, tokens):
    """The naive forward under a causal mask."""
    state, n_heads = stored(folder)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    length = inputs.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    logits = _forward(state, inputs, torch.arange(length), causal, n_heads)
    everywhere = torch.ones_like(targets, dtype=torch.bool)
    mask_id = len(state["backbone.vocab_embed.embedding"]) - 1
    return _subs(logits, targets, everywhere, mask_id=mask_id).double().sum().item()


def naive(folder, tokens, hidden, block_size):
    state, n_heads = stored(folder)
    with torch.inference_mode():
        return two_stream_log_probs(state, tokens, hidden, block_size=block_size, n_heads=n_heads)


def any_order_nats(table):
    """Average p over all orders of one block, ``table[S][d]``, one revealed set after the other."""
    size = len(table[0])

    @functools.cache
    def paths(revealed):
        if not revealed:
            return 1.0
        lasts = [d for d in range(size) if revealed >> d & 1]
        return sum(paths(revealed ^ 1 << d) * math.exp(table[revealed ^ 1 << d][d]) for d in lasts)

    return math.log(paths(2**size - 1) / math.factorial(size))


def exact_nats(folder, tokens, size):
    """One naive forward a revealed set, the same in all blocks; token 0 is never hidden."""
    tables = []
    for revealed in itertools.product([False, True], repeat=size):
        hidden = ~torch.tensor(revealed[::-1]).repeat(tokens.shape[1] // size)[None]
        hidden[0, 0] = False
        tables.append(naive(folder, tokens, hidden, size).view(-1, size).double())
    return sum(any_order_nats(table) for table in torch.stack(tables, dim=1).tolist())


def elbo_nats(folder, tokens, size, num_orderings):
    """One naive forward a step of an ordering; token 0 comes before all."""
    num_blocks = tokens.shape[1] // size
    times = reveal_times(0, [0], range(num_blocks), num_orderings=num_orderings, size=size)[0]
    times[0, :, 0] = -1
    ranks = times.argsort(dim=-1).argsort(dim=-1)  # [blocks, orderings, size]
    scores = torch.zeros(num_blocks, num_orderings, dtype=torch.float64)
    for k, step in itertools.product(range(num_orderings), range(size)):
        hidden = (ranks[:, k] >= step).flatten()[None]
        hidden[0, 0] = False
        now = (ranks[:, k] == step).flatten()[None]
        values = torch.where(now, naive(folder, tokens, hidden, size), 0.0).double()
        scores[:, k] += values.view(num_blocks, size).sum(dim=1)
    return float(sum(oracles.elbo_k(block) for block in scores.tolist()))


def check_record(folder, name):
    recorded = json.loads((folder / "recorded.json").read_text())
    tokens, record = as_tokens(recorded["text"]), recorded["checkpoints"][name]
    assert tokens.shape[1] % 16 == 0  # whole blocks of every size
    weights = (folder / name / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == record["weights_sha256"]
    if name in ARMS:
        expected, estimator = arm_nats(folder / name, tokens), "exact"
    elif BLOCK_SIZES[name] <= 8:
        expected = exact_nats(folder / name, tokens, BLOCK_SIZES[name])
        estimator = "exact, any order"
    else:
        expected = elbo_nats(folder / name, tokens, BLOCK_SIZES[name], NUM_ORDERINGS)
        estimator = f"ELBO_{NUM_ORDERINGS}"
    assert record["estimator"] == estimator
    assert record["log_likelihood_nats"] == pytest.approx(expected, rel=1e-4)
    return record["log_likelihood_nats"]


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """Install small networks with random weights as if they were trained."""
    runs, package = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("demo")
    sizes = {"vocab_size": 1025, "model_length": 128, "hidden_dim": 16, "cond_dim": 4}
    sizes |= {"n_blocks": 2, "n_heads": 2}
    generator = torch.Generator().manual_seed(0)
    for name in DEMO_CHECKPOINTS:
        causal = name in ARMS
        adaln = name == "bd3lm_l8"  # with and without
        options = {"causal": causal, "adaln": adaln, "cross_attn": not causal}
        network = DiT(DiTConfig(block_size=BLOCK_SIZES.get(name, 1), **sizes, **options))
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
        save_checkpoint(runs / name / "model", network)
    install(runs, package)
    return package


@pytest.mark.parametrize("name", DEMO_CHECKPOINTS)
def test_installing_records_what_the_naive_forward_computes(untrained, name):
    check_record(untrained, name)
    weights = load_file(untrained / name / "model.safetensors")
    assert weights["backbone.vocab_embed.embedding"].dtype == torch.float16


def test_a_missing_run_is_named_and_nothing_is_installed(tmp_path):
    (tmp_path / "runs" / "arm" / "model").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="bd3lm_l4/model") as error:
        install(tmp_path / "runs", tmp_path / "package")
    assert "arm/model" not in str(error.value)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("name", DEMO_CHECKPOINTS)
def test_demo_checkpoints_give_their_recorded_likelihood(name):
    nats = check_record(EMBEDDED, name)
    assert demo_checkpoint(name) == EMBEDDED / name
    assert nats > -0.7 * 47 * math.log(1024)  # of the bits of a uniform model


def test_demo_checkpoints_are_of_one_size_and_small():
    configs = [json.loads((demo_checkpoint(n) / "config.json").read_text()) for n in BLOCK_SIZES]
    configs += [json.loads((demo_checkpoint(n) / "config.json").read_text()) for n in ARMS]
    for key in ("vocab_size", "model_length", "hidden_dim", "n_blocks", "n_heads"):
        assert len({config[key] for config in configs}) == 1, key
    assert [config["block_size"] for config in configs] == [4, 8, 16, 1, 1]
    assert [config["causal"] for config in configs] == [False] * 3 + [True] * 2
    assert sum(p.stat().st_size for p in EMBEDDED.rglob("*") if p.is_file()) <= 12_500_000


def test_an_unknown_demo_checkpoint_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"expected one of arm, .*bd3lm_l16, got 'none'"):
        demo_checkpoint("none")


def test_finding_a_demo_checkpoint_is_cheap():
    code = "import sys, tube_lightning.demo; print({'torch', 'numpy'} & set(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert out.stdout.strip() == "set()"
