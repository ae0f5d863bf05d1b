"""The evaluation under a real Trainer: on disk, counted, continued, and on several ranks."""

import datetime
import math
import os
import pickle
import signal
import time

import lightning
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy

from benchmarks.sleeping_ranks import Collectives
from tests.networks import random_model, random_tokens
from tube_lightning.data import TokenSequences
from tube_lightning.evaluator import (
    EvaluationData,
    LikelihoodEvaluation,
    LiveValues,
    Plan,
    score_batch,
)
from tube_lightning.evaluator.batches import sequence_roles
from tube_lightning.orderings import Role
from tube_lightning.protocol import Protocol
from tube_lightning.records import named_tensors
from tube_lightning.scores import ScoreFiles

pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The ``compute`` method of metric"),  # ranks out of batches
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]
PLAN = Plan(Protocol(num_orderings=4, nfe=[2]), 4)
LENGTHS = torch.tensor([12, 7, 1, 9, 12])
BATCH_SIZE = 2


def spell(ids):
    return " ".join(map(str, ids.tolist()))


def documents():
    tokens = random_tokens(len(LENGTHS), 12)
    tokens[torch.arange(12) >= LENGTHS[:, None]] = 0
    token_bytes = torch.where(torch.arange(12) < LENGTHS[:, None], tokens % 5, 0).int()
    return TokenSequences(
        tokens,
        "random",
        "none",
        lengths=LENGTHS,
        token_bytes=token_bytes,
        documents=torch.arange(len(LENGTHS)).int()[:, None].expand_as(tokens),
        decode=spell,
    )


def evaluate(folder, devices=1, callbacks=(), batch_size=BATCH_SIZE, **options):
    """Score what is not in the folder; return the module."""
    files = ScoreFiles(folder)
    module = LikelihoodEvaluation(random_model(4), {}, PLAN, files)
    data = EvaluationData(documents(), batch_size=batch_size, block_size=4, files=files)
    forks = DDPStrategy(start_method="fork", timeout=datetime.timedelta(seconds=60))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=forks if devices > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=list(callbacks),
        **options,
    )
    trainer.test(module, datamodule=data, verbose=False)
    return module


def contents(folder):
    """All tensors of every batch, as bytes: time is not in them."""
    return {
        (number, path): tensor.numpy().tobytes()
        for number in ScoreFiles(folder).finished()
        for path, tensor in named_tensors(ScoreFiles(folder).read(number))
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """One process, from beginning to end."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, evaluate(folder)


def test_files_hold_the_scores_of_the_batches(alone):
    folder, _ = alone
    text = documents()
    assert ScoreFiles(folder).finished() == [0, 1, 2]
    for number, ids in enumerate([[0, 4], [2, 1], [3]]):
        longest = int(LENGTHS[ids].max())
        roles = sequence_roles(LENGTHS[ids], longest, 4)
        want = score_batch(random_model(4), {}, text.tokens[ids, :longest], roles, ids, PLAN)
        got = ScoreFiles(folder).read(number)
        assert got.sequences.tolist() == ids
        assert torch.equal(got.num_tokens, want.num_tokens)
        scored = roles == Role.SCORED
        blocks = F.pad(text.tokens[ids, :longest], (0, roles[0].numel() - longest)).view_as(roles)
        says = [
            [" ".join(map(str, b[s].tolist())) for b, s in zip(*rows, strict=True)]
            for rows in zip(blocks, scored, strict=True)
        ]
        numbers = torch.tensor(ids)[:, None, None].expand_as(roles)
        assert [list(row) for row in got.texts] == says
        assert torch.equal(got.documents, torch.where(scored, numbers, -1))
        assert got.num_bytes.sum(dim=-1).tolist() == text.token_bytes[ids, 1:].sum(dim=-1).tolist()
        for name, regime in want.regimes.items():
            assert torch.equal(got.regimes[name].scores, regime.scores)
            assert torch.equal(got.regimes[name].exact, regime.exact)


def test_running_values_are_those_of_the_files(alone):
    folder, module = alone
    values = module.running_values()
    assert list(values) == ["nfe_2", "ao_arm"]
    assert {"elbo", "elbo_k", "tube", "exact", "elbo_exact", "tube_psi_pi"} <= set(values["nfe_2"])
    parts = list(ScoreFiles(folder).read_all())
    for regime, quantities in values.items():
        nats = {"exact": 0.0, "elbo": 0.0, "elbo_k": 0.0}
        for part in parts:
            counted, scores = part.num_tokens > 0, part.regimes[regime].scores
            nats["exact"] += part.regimes[regime].exact[counted].sum().item()
            nats["elbo"] += scores.mean(dim=-1)[counted].sum().item()
            averaged = scores.logsumexp(dim=-1) - math.log(4)
            nats["elbo_k"] += averaged[counted].sum().item()
        for name, total in nats.items():
            value = quantities[name]
            assert value.num_tokens == (LENGTHS - 1).sum()
            assert value.nats_per_token == pytest.approx(total / 36, rel=1e-12)


def assert_same_values(ours, theirs):
    for regime, quantities in theirs.items():
        for name, values in quantities.items():
            got = ours[regime][name]
            want = (values.nats_per_token, values.standard_error, values.num_tokens)
            assert (got.nats_per_token, got.standard_error, got.num_tokens) == pytest.approx(
                want, rel=1e-12, abs=1e-12
            )
            assert got.error.degrees == values.error.degrees


def test_a_second_run_scores_only_what_is_missing(alone, tmp_path):
    folder, module = alone
    for number in (0, 2):
        name = f"batch_{number:06}.parquet"
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    kept = (tmp_path / "batch_000002.parquet").stat().st_mtime_ns
    again = evaluate(tmp_path)
    assert contents(tmp_path) == contents(folder)
    assert (tmp_path / "batch_000002.parquet").stat().st_mtime_ns == kept
    assert_same_values(again.running_values(), module.running_values())


def test_precision_of_the_trainer_changes_no_bit(alone, tmp_path):
    """The network has its own precision, and everything after it is float64."""
    folder, module = alone
    rough = evaluate(tmp_path, precision="bf16-true")
    assert contents(tmp_path) == contents(folder)
    assert_same_values(rough.running_values(), module.running_values())


@pytest.mark.parametrize("bank", [False, True])
def test_module_and_plan_go_to_other_processes(tmp_path, bank):
    """As spawned processes get them: by pickles, to which lambdas are strange."""
    plan = Plan(Protocol(num_orderings=4, nfe=[2], bank=bank, num_reseeds=int(bank)), 4)
    module = LikelihoodEvaluation(random_model(4), {}, plan, ScoreFiles(tmp_path))
    other = pickle.loads(pickle.dumps(module))
    tokens, roles = random_tokens(2, 8), sequence_roles(torch.tensor([8, 8]), 8, 4)
    ours, theirs = (
        score_batch(m.model, {}, tokens, roles, [0, 1], m.plan) for m in (module, other)
    )
    for (path, one), (_, another) in zip(
        named_tensors(ours.regimes), named_tensors(theirs.regimes), strict=True
    ):
        assert torch.equal(one, another), path
    for one in (module, other):
        one.count(ours)
    assert_same_values(other.running_values(), module.running_values())


class KeepValues(lightning.Callback):
    """Leaves the values that a rank ends with in a file: a process has no other way."""

    def __init__(self, folder):
        self.folder = folder

    def on_test_end(self, trainer, pl_module):
        torch.save(pl_module.running_values(), self.folder / f"{trainer.global_rank}.pt")


@pytest.mark.parametrize("devices", [2, 4])
def test_ranks_give_the_bits_of_one_process(alone, tmp_path, devices):
    """Three batches: the second rank of two has none in the last turn, the fourth none at all."""
    if not torch.distributed.is_gloo_available():
        pytest.skip("several processes need gloo")
    folder, module = alone
    callbacks = [KeepValues(tmp_path), LiveValues()]
    evaluate(tmp_path / "scores", devices, callbacks, log_every_n_steps=1)
    assert contents(tmp_path / "scores") == contents(folder)
    for rank in range(devices):
        values = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        assert_same_values(values, module.running_values())


class CountCollectives(lightning.Callback):
    """Leaves the names of all collectives from a rank's first batch to its end in a file."""

    def __init__(self, folder):
        self.folder = folder

    def on_test_epoch_start(self, trainer, pl_module):
        self.counted = Collectives()
        self.counted.__enter__()
        torch.distributed.barrier()  # to see that it is seen

    def on_test_end(self, trainer, pl_module):
        self.counted.__exit__(None, None, None)
        torch.save(self.counted.names, self.folder / f"{trainer.global_rank}.pt")


class Dawdle(lightning.Callback):
    """Makes the batches of one rank slow, and has it get a signal at its first."""

    def __init__(self, rank, seconds=0.0, number=None):
        self.rank, self.seconds, self.number = rank, seconds, number

    def on_test_batch_start(self, trainer, *_):
        if trainer.global_rank == self.rank:
            time.sleep(self.seconds)
            if self.number is not None:
                os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("slow_rank", [0, 1])
def test_no_rank_waits_between_the_first_batch_and_the_last(alone, tmp_path, slow_rank):
    callbacks = [CountCollectives(tmp_path), Dawdle(slow_rank, 0.3), LiveValues()]
    evaluate(tmp_path / "scores", 2, callbacks, log_every_n_steps=1)
    assert contents(tmp_path / "scores") == contents(alone[0])
    for rank in range(2):
        assert torch.load(tmp_path / f"{rank}.pt", weights_only=False) == ["barrier.default"]


@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_any_rank_stops_all_with_their_batches_on_disk(tmp_path, asked):
    """Five batches on two ranks: the other one sees it at its next batch, and rank 0 says so."""
    callbacks = [Dawdle(asked, number=signal.SIGTERM), Dawdle(1 - asked, 0.5)]
    with pytest.raises(torch.multiprocessing.ProcessExitedException, match="code 143"):
        evaluate(tmp_path / "scores", 2, callbacks, batch_size=1)
    finished = ScoreFiles(tmp_path / "scores").finished()
    assert [number for number in finished if number % 2 == asked] == [asked]  # after its first
    assert {0, 1} <= set(finished) < set(range(5))
    evaluate(tmp_path / "whole", batch_size=1)
    evaluate(tmp_path / "scores", 2, batch_size=1)
    assert contents(tmp_path / "scores") == contents(tmp_path / "whole")
