"""Everything that runs on a GPU, on a device that is not there: where tensors are, who waits.

Each test runs on an accelerator with float64 and on one without, as Apple's is, and has the CPU's
values bit for bit. How often the host waits is stated; between micro-batches it never does.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from pretend_device import (
    PRETEND,
    both_kinds,  # noqa: F401 (a fixture)
    same_arithmetic,  # noqa: F401
    synchronisations,
    without_float64,
)

from tests.networks import VOCAB, random_model, random_network, random_tokens
from tube_lightning import memory, scoring
from tube_lightning.bounds import elbo_k
from tube_lightning.evaluator import LikelihoodEvaluation, Plan, TokenBatch, score_batch
from tube_lightning.evaluator.batches import sequence_roles
from tube_lightning.lattice import exact_cubo, exact_elbo, exact_log_likelihoods, score_orderings
from tube_lightning.metrics import LikelihoodBound
from tube_lightning.networks import DiT, DiTARM, TransformersARM
from tube_lightning.orderings import EqualChunks, RevealedSets, all_sets, reveal_times
from tube_lightning.placement import exact_device, send
from tube_lightning.protocol import Protocol
from tube_lightning.records import named_tensors
from tube_lightning.sampling import sample_sequences
from tube_lightning.scores import ScoreFiles
from tube_lightning.training import adamw, muon, negative_log_likelihood, nelbo

ROOT = Path(__file__).parent.parent
PROTOCOLS = {
    "exact": Protocol(num_orderings=4, chunks=[2]),
    "sampled": Protocol(num_orderings=4, chunks=[2], exact_max_block_size=0),
    "paper": Protocol(num_orderings=4, bank=True, num_reseeds=2, elbo_seeds=3),
    "paper, sampled": Protocol(
        num_orderings=4, bank=True, num_reseeds=2, elbo_seeds=3, exact_max_block_size=0
    ),
}


def assert_same(found, expected):
    for (path, ours), (_, theirs) in zip(
        named_tensors(found), named_tensors(expected), strict=True
    ):
        assert torch.equal(ours.cpu(), theirs), path


def random_arm(seed=1):
    network = random_network(4, seed=seed, cross_attn=False)
    network = DiT(replace(network.config, causal=True, adaln=False))
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return DiTARM.from_network(network)


def token_batch():
    lengths = torch.tensor([30, 1, 17, 30])
    return TokenBatch(
        number=0,
        sequences=[0, 1, 2, 3],
        tokens=random_tokens(4, 30),
        roles=sequence_roles(lengths, 30, 4),
        token_bytes=torch.ones(4, 30, dtype=torch.int32),
        documents=torch.arange(4, dtype=torch.int32)[:, None].expand(4, 30),
        texts=None,
    )


def module_on(device, protocol, folder):
    plan, arms = Plan(PROTOCOLS[protocol], 4), {"arm": random_arm()}
    return LikelihoodEvaluation(random_model(4), arms, plan, ScoreFiles(folder)).to(device)


def score_on(module, device):
    """Score a batch, and return the scores with the waits."""
    batch = module.transfer_batch_to_device(token_batch(), device, 0)
    _, sequences, tokens, roles, token_bytes, documents, _ = batch
    arguments = (tokens, roles, sequences, module.plan, token_bytes, documents)
    with synchronisations() as waits:
        scores = score_batch(module.model, {"arm": module.arm}, *arguments)
    return scores, waits


def test_tensors_of_two_devices_do_not_mix():
    here, there = torch.ones(3), torch.ones(3, device=PRETEND)
    with pytest.raises(RuntimeError, match="tensors on one device"):
        here + there
    with pytest.raises(RuntimeError, match="tensors on one device"):
        there[torch.tensor([0])]
    assert (there + torch.tensor(1.0)).tolist() == [2, 2, 2]  # torch lets single numbers pass
    assert (there @ there).device == PRETEND


def test_waits_are_counted():
    x = torch.arange(4.0, device=PRETEND)
    with synchronisations() as waits:
        x.masked_fill_(x > 2, 0)
        x[x > 1] = 0
        torch.ones(4).to(PRETEND, non_blocking=True)
    assert not waits
    with synchronisations() as waits:
        x.sum().item(), bool((x > 3).any()), int(x[0])
        x[x > 0], x.nonzero(), x.unique(), x.equal(x)
        x.tolist(), x.cpu(), torch.tensor([1.0], device=PRETEND), x.new_tensor([2.0])
    assert waits == {
        "item": 3,
        "boolean index": 1,
        "nonzero": 1,
        "unique": 1,
        "equal": 1,
        "copy": 4,
    }


def test_numbers_that_come_to_the_host_are_waited_for():
    x = torch.ones(2, device=PRETEND)
    with pytest.raises(RuntimeError, match="expected to wait"):
        x.to("cpu", non_blocking=True)
    with synchronisations() as waits:
        assert send(x, torch.device("cpu")).tolist() == [1, 1]
    assert waits == {"copy": 1}


def test_a_device_without_float64_refuses_it():
    assert exact_device(PRETEND) == PRETEND
    with without_float64():
        assert exact_device(PRETEND).type == "cpu"
        x = torch.ones(2, device=PRETEND)
        for make in (
            lambda: torch.ones(2, dtype=torch.float64, device=PRETEND),
            lambda: torch.ones(2, dtype=torch.float64).to(PRETEND),
            x.double,
            lambda: x.to("cpu", torch.float64),  # the device itself would convert
        ):
            with pytest.raises(TypeError, match="float64"):
                make()


@pytest.mark.usefixtures("both_kinds")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_batch_is_scored_and_counted_as_on_the_cpu(protocol, tmp_path):
    found, expected = (
        module_on(device, protocol, tmp_path / device.type)
        for device in (PRETEND, torch.device("cpu"))
    )
    for module in (found, expected):
        device = exact_device(module.device)
        module.test_step(module.transfer_batch_to_device(token_batch(), module.device, 0), 0)
        states = [m.sum_nats for metrics in module.metrics.values() for m in metrics.values()]
        assert {state.device for state in states} == {device}
    assert_same(*(replace(module.files.read(0), seconds=0.0) for module in (found, expected)))
    assert found.running_values() == expected.running_values()


def waits_of_a_batch(protocol, folder, budgets, monkeypatch):
    """Count the waits of batches behind the first, which makes lists of subsets."""
    module, waits = module_on(PRETEND, protocol, folder), []
    for budget in (max(budgets), *budgets):
        monkeypatch.setattr(memory, "default_token_budget", lambda *_, budget=budget: budget)
        waits.append(sum(score_on(module, PRETEND)[1].values()))
    return waits[1:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_waits_of_a_batch_are_those_of_the_page(protocol, monkeypatch, tmp_path):
    """However many micro-batches there are: of 30 rows, or all at once."""
    budgets = (4 * 30, 1 << 20)
    many, one = waits_of_a_batch(protocol, tmp_path, budgets, monkeypatch)
    with without_float64():
        many_there, one_there = waits_of_a_batch(protocol, tmp_path, budgets, monkeypatch)
    assert (many, many_there) == (one, one_there)
    page = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    assert f"| {protocol} | {one} | {one_there} | 0 |" in page


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scores_stay_on_the_device_until_they_are_written(protocol, tmp_path):
    module = module_on(PRETEND, protocol, tmp_path)
    scores, _ = score_on(module, PRETEND)
    tensors = dict(named_tensors(scores))
    assert tensors.pop("sequences").device.type == "cpu"
    assert {tensor.device for tensor in tensors.values()} == {PRETEND}
    with synchronisations() as waits:
        module.files.write(0, scores)
    assert waits == {"copy": len(tensors)}
    with synchronisations() as waits:
        module.count(scores)
    num_metrics = sum(len(metrics) for metrics in module.metrics.values())
    assert sum(waits.values()) <= 5 * num_metrics


def all_rows(num_blocks):
    sets = all_sets(4)[:-1].repeat(num_blocks, 1)
    block = torch.arange(num_blocks).repeat_interleave(15)
    return RevealedSets(sets, ~sets, block, index=())


@pytest.mark.usefixtures("both_kinds")
@pytest.mark.parametrize("budget", [32, 64, 1 << 20])
def test_rows_are_waited_for_at_both_ends(budget):
    """Bad tokens are refused before, bad values after; or values are fetched, text by text."""
    tokens, sets = random_tokens(4), all_rows(4 * 8)
    model = random_model(4).to(PRETEND)
    there = tokens.to(PRETEND)
    with synchronisations() as waits:
        rows = scoring.conditional_rows(model, there, sets, token_budget=budget)
    num_groups = 4 // min(4, budget // 32)
    home = exact_device(PRETEND)
    assert rows.device == home
    assert waits == ({"item": 2} if home == PRETEND else {"item": 1, "copy": num_groups})
    expected = scoring.conditional_rows(random_model(4), tokens, sets, token_budget=budget)
    assert torch.equal(rows.cpu(), expected)


def test_lattice_on_a_device():
    """One wait a call, for values that are no numbers."""
    table = scoring.conditional_table(random_model(4), random_tokens(2, 8))
    times = reveal_times(0, [0, 1], [0, 1], num_orderings=3, size=4)
    there = table.to(PRETEND)
    for compute in (
        lambda t: exact_log_likelihoods(t, [None, 1, 3, 4, EqualChunks(2)]),
        exact_elbo,
        partial(exact_elbo, steps=3),
        exact_cubo,
        lambda t: score_orderings(t, times, EqualChunks(2)),
    ):
        compute(there)  # lists of subsets are sent once
        with synchronisations() as waits:
            found = compute(there)
        assert waits == {"item": 1}
        assert torch.equal(found.cpu(), compute(table))


@pytest.mark.usefixtures("both_kinds")
def test_metrics_on_a_device():
    scores = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    num_tokens = torch.tensor([[4, 4, 4, 4, 0]]).expand(3, -1)
    home = exact_device(PRETEND)
    for bound in ("tube", "elbo_k", "cubo", elbo_k):
        here, there = LikelihoodBound(bound), LikelihoodBound(bound).to(PRETEND)
        here.update(scores, num_tokens)
        with synchronisations() as waits:
            there.update(scores.to(home, non_blocking=True), num_tokens.to(home, non_blocking=True))
        assert sum(waits.values()) <= 6
        assert there.sum_nats.device == home
        assert torch.equal(there.compute().cpu(), here.compute())
        assert there.measured() == here.measured()
        assert there.half().sum_nats.dtype == torch.float64
        there.reset()
        assert there.sum_nats.device == home


@pytest.mark.usefixtures("both_kinds")
@pytest.mark.parametrize("steps", [None, 2, EqualChunks(2)])
def test_sampling_waits_once_a_block(steps):
    options = {"num_sequences": 3, "length": 14, "seed": 1, "steps": steps, "nucleus": 0.9}
    prompt = torch.tensor([1])
    (expected,) = sample_sequences(random_model(4), prompt=prompt, **options)
    model = random_model(4).to(PRETEND)
    with synchronisations() as waits:
        (found,) = sample_sequences(model, prompt=prompt, **options)
    assert found.device == PRETEND
    assert torch.equal(found.cpu(), expected)
    assert waits["item"] == 4  # blocks
    num_rounds = {None: 3 + 4 + 4 + 2, 2: 8, EqualChunks(2): 8}[steps]
    fetched = 0 if exact_device(PRETEND) == PRETEND else num_rounds
    assert waits["copy"] <= 1 + fetched  # the prompt; logits, where float64 is elsewhere


def train_a_step(device, objective, optimizer):
    network = random_network(4).to(device)
    network.train()
    torch.manual_seed(0)  # of dropout
    steps, tokens = optimizer(network, learning_rate=0.01), random_tokens(3, 30).to(device)
    with synchronisations() as waits:
        cost = objective(network, tokens, torch.Generator().manual_seed(1))
        (cost.sum_nats / cost.num_tokens).backward()
        steps.step()
    return cost.sum_nats.detach(), network.state_dict(), waits


@pytest.mark.usefixtures("both_kinds")
@pytest.mark.parametrize("optimizer", [adamw, muon])
@pytest.mark.parametrize("objective", [nelbo, partial(nelbo, copies=2), negative_log_likelihood])
def test_a_training_step_never_waits(objective, optimizer):
    found, weights, waits = train_a_step(PRETEND, objective, optimizer)
    assert not waits
    assert all(tensor.device == PRETEND for tensor in weights.values())
    expected, theirs, _ = train_a_step("cpu", objective, optimizer)
    assert torch.equal(found.cpu(), expected)
    for name, tensor in weights.items():  # on a CPU torch's AdamW takes them one by one
        torch.testing.assert_close(tensor.cpu(), theirs[name], atol=1e-6, rtol=0)


@pytest.mark.usefixtures("both_kinds")
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_transformers_on_a_device(kind):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **sizes)
    else:
        config = transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            **sizes,
        )
    arm = TransformersARM(transformers.AutoModelForCausalLM.from_config(config))
    _, _, tokens, roles, *_ = token_batch()
    expected = scoring.block_log_probs(arm, tokens, roles)
    arm, tokens = arm.to(PRETEND), tokens.to(PRETEND)
    with synchronisations() as waits:
        found = scoring.block_log_probs(arm, tokens, roles)
    assert found.device == exact_device(PRETEND)
    assert torch.equal(found.cpu(), expected)
    assert waits["item"] <= 3  # bad tokens, bad values, and a question of transformers' own
    assert waits["copy"] == (exact_device(PRETEND) != PRETEND)
