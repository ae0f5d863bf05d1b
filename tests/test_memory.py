"""How many tokens at once: by arithmetic, by the record, and by running out of memory."""

import json
from dataclasses import replace

import lightning
import pytest
import torch
from evaluation_runs import FIXTURES
from networks import random_model, random_network, random_tokens

from tests.ranks import on_ranks
from tests.watched_operators import Held
from tube_lightning import evaluate
from tube_lightning.checkpoints import load_arm, load_block_model
from tube_lightning.evaluator import Plan, score_batch
from tube_lightning.evaluator.batches import sequence_roles
from tube_lightning.evaluator.block_scores import num_entries
from tube_lightning.evaluator.budget import agree_on_budget
from tube_lightning.memory import (
    CPU_TOKENS,
    LEAST_TOKENS,
    MOST_TOKENS,
    USABLE,
    TokenBudget,
    default_token_budget,
    fitting_budget,
    model_footprint,
    network_footprint,
    weight_bytes,
)
from tube_lightning.networks import BlockDiffusion, DiT, DiTConfig, PlannedRows, products
from tube_lightning.orderings import distinct_sets, left_to_right_times, reveal_steps
from tube_lightning.protocol import Protocol
from tube_lightning.records import named_tensors
from tube_lightning.rundir import RunRecord, record_budget, recorded_budgets
from tube_lightning.scoring import block_log_probs, conditional_table

GIB = 1 << 30
PUBLISHED = network_footprint(12, 768, 50_258, torch.float32)


class Cramped:
    """A model on a device that has memory for so many tokens, and runs out of it beyond."""

    def __init__(self, model, most, error=torch.OutOfMemoryError, words="CUDA out of memory."):
        self.model, self.most, self.largest, self.failures = model, most, 0, 0
        self.error, self.words = error, words
        self.fingerprint = "cramped"

    def __getattr__(self, name):
        return getattr(self.model, name)

    def _allocate(self, tokens):
        if tokens.numel() > self.most:
            self.failures += 1
            raise self.error(self.words)
        self.largest = max(self.largest, tokens.numel())

    def encode(self, tokens):
        self._allocate(tokens)
        return self.model.encode(tokens)

    def log_probs(self, context, rows):
        self._allocate(rows.tokens)
        return self.model.log_probs(context, rows)

    def token_log_probs(self, tokens):
        self._allocate(tokens)
        return self.model.token_log_probs(tokens)


# ---- arithmetic


def test_footprints_count_the_weights_that_are_there():
    for dtype in (torch.float32, torch.bfloat16):
        model = BlockDiffusion.from_network(random_network(4), dtype)
        found = model_footprint(model)
        tensors = [tensor for _, tensor in named_tensors(model.trunk)]
        assert found.weights == sum(t.numel() * t.element_size() for t in tensors)
        vocab, dim = model.trunk.embedding.shape
        sizes = network_footprint(len(model.trunk.layers), dim, vocab, dtype)
        assert (found.kept, found.passing) == (sizes.kept, sizes.passing)
        kept = model.encode(random_tokens(1, 32))
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage() for _, t in named_tensors(kept)
        }
        assert found.kept * kept.length == sum(memory.nbytes() for memory in storages.values())
    assert model_footprint(load_arm(FIXTURES / "ar")).weights > 0
    assert model_footprint(torch.nn.Linear(3, 4)) is None
    assert weight_bytes(torch.nn.Linear(3, 4)) == 4 * (3 * 4 + 4)
    assert weight_bytes("no weights") == 0


@pytest.mark.parametrize("gib", [1, 2, 4, 8, 24, 80])
@pytest.mark.parametrize("num_layers", [12, 32])
def test_the_plan_fits_and_twice_as_much_would_not(gib, num_layers):
    network = network_footprint(num_layers, 64 * num_layers, 50_258, torch.bfloat16)
    entries = 10**6
    budget = fitting_budget(gib * GIB, network, network.weights, entries)
    assert budget & (budget - 1) == 0

    def peak(tokens):
        return network.peak(
            tokens, length=256, batch_size=10**6, beside=network.weights, num_entries=entries
        ).total

    if budget > LEAST_TOKENS:
        assert peak(budget) <= USABLE * gib * GIB
    if budget < MOST_TOKENS:
        assert peak(2 * budget) > USABLE * gib * GIB


@pytest.mark.parametrize("dim", [128, 256])
def test_a_token_on_its_way_takes_what_is_planned(dim, monkeypatch):
    """As on an accelerator: GELU by an operator of its own, and a kernel that holds no scores."""
    monkeypatch.setattr(products, "_has_onednn", lambda: False)
    config = DiTConfig(
        vocab_size=23, model_length=64, block_size=4, hidden_dim=dim, n_blocks=2, n_heads=dim // 16
    )
    trunk = DiT(config).fold().freeze()
    model = BlockDiffusion(config, trunk, lambda *_: lambda own, *_: own.queries.clone())
    tokens = random_tokens(1, 64)
    with torch.no_grad():
        context = model.encode(tokens)

    def peak(num_rows):
        block = torch.arange(16).repeat_interleave(num_rows // 16)
        hidden = torch.ones(num_rows, 4, dtype=torch.bool)
        (rows,) = PlannedRows(block, ~hidden, hidden, 16).micro_batches(tokens.view(16, 4))
        with torch.no_grad(), Held() as held:
            model.log_probs(context, rows)
        return held.most

    a_token = (peak(512) - peak(256)) / (256 * 4)
    besides = 4 * 16 + 64  # of rotations, and of the tokens' own numbers
    assert 0 <= a_token - model_footprint(model).passing <= besides


def test_more_memory_is_never_fewer_tokens():
    budgets = [fitting_budget(gib * GIB, PUBLISHED, 0, 0) for gib in range(1, 100)]
    assert budgets == sorted(budgets)
    assert budgets[-1] == MOST_TOKENS
    assert fitting_budget(0, PUBLISHED, 0, 0) == LEAST_TOKENS
    assert fitting_budget(None, PUBLISHED, 0, 0) == MOST_TOKENS
    assert fitting_budget(GIB, None, 0, 0) == MOST_TOKENS


def test_cpus_take_what_they_always_took():
    assert default_token_budget(torch.device("cpu"), random_model(4)) == CPU_TOKENS == 1024


@pytest.mark.parametrize("protocol", [Protocol(exact_max_block_size=0), Protocol()])
@pytest.mark.parametrize("block_size", [4, 16])
def test_tables_are_not_larger_than_planned(protocol, block_size):
    plan = Plan(replace(protocol, num_orderings=12), block_size)
    roles = torch.zeros(1, 1, block_size, dtype=torch.int64)
    if plan.exact:
        assert num_entries(plan, 2, 3 * block_size) == 6 * block_size * (2**block_size - 1)
        return
    times = torch.cat([plan.draw_times([0], 1)[0], left_to_right_times(roles)], dim=1)
    sets = distinct_sets(*(reveal_steps(times, regime.steps) for regime in plan.regimes))
    assert len(sets.block) <= plan.most_sets
    assert sets.needed.numel() <= num_entries(plan, 1, block_size)


# ---- out of memory


@pytest.mark.parametrize("most", [32, 40, 100, 10**6])
def test_running_out_halves_the_budget_and_changes_no_value(most):
    model, tokens = random_model(4), random_tokens(3, 32)
    whole = conditional_table(model, tokens)
    cramped, budget = Cramped(model, most), TokenBudget(1024)
    table = conditional_table(cramped, tokens, token_budget=budget)
    torch.testing.assert_close(table, whole, atol=1e-5, rtol=0)
    assert cramped.largest <= most
    assert budget.tokens == min(1024, 1 << (most.bit_length() - 1))
    assert cramped.failures == (1024 // budget.tokens).bit_length() - 1
    again = conditional_table(cramped, tokens, token_budget=budget)  # at the size that fits
    assert cramped.failures == (1024 // budget.tokens).bit_length() - 1
    torch.testing.assert_close(again, whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "words",
    [
        "MPS backend out of memory (MPS allocated: 8.89 GB, max allowed: 9.07 GB).",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_devices_that_run_out_in_words_alone(words):
    model, tokens, budget = random_model(4), random_tokens(3, 32), TokenBudget(1024)
    conditional_table(Cramped(model, 40, RuntimeError, words), tokens, token_budget=budget)
    assert budget.tokens == 32


def test_other_errors_are_no_lack_of_memory():
    cramped, budget = Cramped(random_model(4), 40, RuntimeError, "shape mismatch"), TokenBudget(99)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        conditional_table(cramped, random_tokens(3, 32), token_budget=budget)
    assert budget.tokens == 99


def test_memory_for_less_than_a_block_is_an_error():
    with pytest.raises(torch.OutOfMemoryError, match="token_budget: expected memory for 4 tokens"):
        conditional_table(Cramped(random_model(4), 3), random_tokens(1, 8))
    for bad in (0, -1, True):
        with pytest.raises(ValueError, match=f"token_budget: .* at least 1, got {bad}"):
            TokenBudget(bad)


def test_processes_of_a_group_do_not_halve_apart():
    budget = TokenBudget(1024, may_halve=False)
    with pytest.raises(torch.OutOfMemoryError, match="expected memory for 1024 tokens"):
        conditional_table(Cramped(random_model(4), 40), random_tokens(3, 32), token_budget=budget)
    assert budget.tokens == 1024


def test_an_arm_runs_out_of_memory_too():
    arm, roles = load_arm(FIXTURES / "ar"), sequence_roles(torch.tensor([8] * 5), 8, 4)
    tokens = random_tokens(5, 8) % arm.vocab_size
    whole = block_log_probs(arm, tokens, roles)
    budget = TokenBudget(64)
    found = block_log_probs(Cramped(arm, 20), tokens, roles, budget)
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=0)
    assert budget.tokens == 16


def test_scores_of_a_batch_agree_to_rounding():
    model, arm = random_model(4), load_arm(FIXTURES / "ar")
    tokens, roles = random_tokens(3, 12), sequence_roles(torch.tensor([12, 7, 12]), 12, 4)
    for exact in (8, 0):
        plan = Plan(Protocol(num_orderings=5, exact_max_block_size=exact, elbo_seeds=2), 4)
        whole = score_batch(model, {"arm": arm}, tokens, roles, [0, 1, 2], plan)
        budget = TokenBudget(256)
        found = score_batch(
            Cramped(model, 20), {"arm": arm}, tokens, roles, [0, 1, 2], plan, token_budget=budget
        )
        assert budget.tokens == 16
        for (path, want), (_, got) in zip(named_tensors(whole), named_tensors(found), strict=True):
            tolerance = 1e-2 if path.endswith("continuous_elbo") else 2e-5  # divided by a rate
            torch.testing.assert_close(got, want, atol=tolerance, rtol=0, msg=path)


# ---- one for all ranks, on record


def test_the_smallest_device_decides_for_all_ranks(tmp_path):
    def on_one(rank):
        strategy = lightning.pytorch.strategies.DDPStrategy(
            parallel_devices=[torch.device("cpu")] * 3
        )
        fitting = [4096, 512, 2048][rank]
        return [
            agree_on_budget(strategy, fitting, asked, None).tokens for asked in (None, 100 + rank)
        ]

    assert on_ranks(3, on_one, tmp_path / "ranks") == [[512, 100], [512, 101], [512, 102]]


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
def test_the_record_tells_and_the_next_run_takes_it_up(tmp_path, no_figures):
    model = Cramped(load_block_model(FIXTURES / "bd3lm_block4"), 40)
    text = random_tokens(32, 8) % 40

    def run(tokens, **options):
        return evaluate(
            model, tokens, batch_size=16, output_dir=tmp_path / "run", show=False, **options
        )

    first = run(text, token_budget=300)
    assert recorded_budgets(tmp_path / "run") == {"cpu": [300, 37]}
    failures = model.failures
    (tmp_path / "run" / "scores" / "batch_000001.parquet").unlink()
    again = run(text)
    assert model.failures == failures == 3
    assert recorded_budgets(tmp_path / "run") == {"cpu": [300, 37]}
    for name in ("exact", "elbo_k", "tube"):
        ours, theirs = (r["regimes"]["ao_arm"][name]["ppl"] for r in (first, again))
        assert ours == pytest.approx(theirs, rel=1e-6)
    other = evaluate(model.model, text, batch_size=16, output_dir=tmp_path / "roomy", show=False)
    assert recorded_budgets(tmp_path / "roomy") == {"cpu": [1024]}
    ours, theirs = (r["regimes"]["ao_arm"]["exact"]["ppl"] for r in (first, other))
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_records_of_budgets(tmp_path, no_figures):
    assert recorded_budgets(tmp_path) == {}
    evaluate(FIXTURES / "bd3lm_block4", random_tokens(2, 8) % 40, output_dir=tmp_path, show=False)
    for kind, tokens in (("cuda", 512), ("cuda", 512), ("cuda", 256), ("cpu", 64)):
        record_budget(tmp_path, kind, tokens)
    assert recorded_budgets(tmp_path) == {"cpu": [1024, 64], "cuda": [512, 256]}
    for tokens in (512, 128, 256):  # ranks run out of memory one by one
        record_budget(tmp_path, "cuda", tokens, shrunk=True)
    assert recorded_budgets(tmp_path)["cuda"] == [512, 256, 128]
    path = tmp_path / "run.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "token_budgets": {"cuda": [0]}}))
    with pytest.raises(ValueError, match=r"token_budgets.cuda: .* at least 1, got 0"):
        RunRecord.read(tmp_path)
    path.write_text(json.dumps({**values, "token_budgets": {"cuda": 512}}))
    with pytest.raises(ValueError, match=r"token_budgets.cuda: expected a list, got 512"):
        RunRecord.read(tmp_path)
