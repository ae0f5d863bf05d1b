"""Batches: a function of text, batch size and seed, on any devices and after any kill."""

from collections import Counter
from functools import partial
from itertools import chain

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from tube_lightning.data import TokenDataModule, TokenSequences, TrainingBatches, ValidationBatches

# Lightning 2.6 makes torch 2.13 say so whenever it is given a loader.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")

BATCH_SIZE, NUM_SEQUENCES = 4, 22
STEPS_AN_EPOCH = NUM_SEQUENCES // BATCH_SIZE


def numbered(num_sequences=NUM_SEQUENCES, first=0):
    """Sequences whose first token is their number."""
    numbers = torch.arange(first, first + num_sequences)
    return TokenSequences(numbers[:, None].repeat(1, 3), "numbers", "none")


def rows(batches):
    return [batch[:, 0].tolist() for batch in batches]


def flat(lists):
    return list(chain.from_iterable(lists))


# ---- the training stream


def test_an_epoch_is_a_shuffle_without_repetition():
    batches = TrainingBatches(numbered(), BATCH_SIZE, seed=0)
    epochs = [rows(batches) for _ in range(50)]
    for epoch in epochs:
        assert len(epoch) == len(batches) == STEPS_AN_EPOCH
        assert all(len(batch) == BATCH_SIZE for batch in epoch)
        assert max(Counter(flat(epoch)).values()) == 1
    assert len({str(epoch) for epoch in epochs}) == 50
    assert set(flat(flat(epochs))) == set(range(NUM_SEQUENCES))


def test_the_stream_depends_on_the_seed_alone():
    def stream(seed):
        batches = TrainingBatches(numbered(), BATCH_SIZE, seed=seed)
        return [rows(batches) for _ in range(3)]

    torch.manual_seed(1)
    assert stream(5) == stream(5)
    assert stream(5) != stream(6)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_split_each_batch(world_size):
    alone = rows(TrainingBatches(numbered(), BATCH_SIZE, seed=3))
    ranks = [
        rows(TrainingBatches(numbered(), BATCH_SIZE, seed=3, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    for step, batch in enumerate(alone):
        parts = [rank[step] for rank in ranks]
        assert {len(part) for part in parts} == {BATCH_SIZE // world_size}
        assert sorted(flat(parts)) == sorted(batch)


@pytest.mark.parametrize(
    "place", [0, 1, STEPS_AN_EPOCH - 1, STEPS_AN_EPOCH, 3 * STEPS_AN_EPOCH + 2]
)
def test_the_stream_continues_from_a_state(place):
    def take(batches, count):
        taken = []
        while len(taken) < count:
            for batch in batches:
                taken.append(batch[:, 0].tolist())
                if len(taken) == count:
                    break
        return taken

    batches = TrainingBatches(numbered(), BATCH_SIZE, seed=3)
    take(batches, place)
    state = batches.state_dict()
    resumed = TrainingBatches(numbered(), BATCH_SIZE, seed=3)
    resumed.load_state_dict(state)
    assert take(resumed, 2 * STEPS_AN_EPOCH) == take(batches, 2 * STEPS_AN_EPOCH)


def test_making_an_iterator_takes_nothing():
    batches = TrainingBatches(numbered(), BATCH_SIZE, seed=3)
    iter(batches)
    assert batches.state_dict()["batches_seen"] == 0


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (TrainingBatches(numbered(), BATCH_SIZE, seed=4), "seed 3 as before, got 4"),
        (TrainingBatches(numbered(), 2, seed=3), "batch_size 4 as before, got 2"),
        (TrainingBatches(numbered(first=1), BATCH_SIZE, seed=3), "sha256"),
    ],
)
def test_the_state_of_another_stream_is_refused(other, key):
    state = TrainingBatches(numbered(), BATCH_SIZE, seed=3).state_dict()
    with pytest.raises(ValueError, match=f"resume: expected the {key}"):
        other.load_state_dict(state)


def test_bad_batch_sizes_and_seeds():
    with pytest.raises(ValueError, match="at most the 22 sequences of numbers, got 23"):
        TrainingBatches(numbered(), 23, seed=0)
    with pytest.raises(ValueError, match=r"multiple of the number of devices \(3\), .* got 4"):
        TrainingBatches(numbered(), 4, seed=0, world_size=3)
    with pytest.raises(ValueError, match=r"batch_size: expected a positive multiple .* got 0"):
        ValidationBatches(numbered(), 0)
    with pytest.raises(ValueError, match="seed: expected a non-negative integer, got -1"):
        TrainingBatches(numbered(), 4, seed=-1)
    with pytest.raises(
        ValueError, match="numbers: expected a sequence for each of 4 devices, got 3"
    ):
        ValidationBatches(numbered(3), 4, world_size=4)


# ---- validation


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("per_rank", [1, 2, 5])
@pytest.mark.parametrize("num_sequences", range(4, 23))
def test_validation_takes_every_sequence_once(num_sequences, per_rank, world_size):
    sequences, batch_size = numbered(num_sequences), per_rank * world_size
    ranks = [
        ValidationBatches(sequences, batch_size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert {len(rank) for rank in ranks} == {len(list(rank)) for rank in ranks} == {len(ranks[0])}
    taken = [row for rank in ranks for batch in rows(rank) for row in batch]
    assert sorted(taken) == list(range(num_sequences))
    sizes = [len(batch) for rank in ranks for batch in rank]
    assert min(sizes) >= 1
    assert max(sizes) <= per_rank + (per_rank == 1)


def test_validation_on_one_device_is_in_order():
    assert flat(rows(ValidationBatches(numbered(), 4))) == list(range(NUM_SEQUENCES))


# ---- in a Trainer


class KilledError(Exception):
    pass


class Recorder(lightning.LightningModule):
    """Records the sequences of each step, and dies after a given number of them."""

    def __init__(self, kill_after=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.kill_after = kill_after
        self.seen, self.validated = [], []

    def training_step(self, batch, batch_idx):
        if len(self.seen) == self.kill_after:
            raise KilledError
        self.seen.append(batch[:, 0].tolist())
        return self.weight * batch.float().mean()

    def validation_step(self, batch, batch_idx):
        self.validated.append(batch[:, 0].tolist())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def fit(module, folder, checkpoint=None, *, validation=None, devices=1, **options):
    data = TokenDataModule(numbered, validation, batch_size=BATCH_SIZE, seed=3)
    options = {"max_steps": 3 * STEPS_AN_EPOCH + 2, **options}
    if validation is None:
        options["limit_val_batches"] = 0
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=1, save_last=True, save_top_k=0)],
        **options,
    )
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    return module


def killed_run(folder, kill_after, **options):
    """Run, be killed, resume; return the steps of both parts."""
    before = Recorder(kill_after)
    with pytest.raises(KilledError):
        fit(before, folder, **options)
    after = fit(Recorder(), folder, folder / "last.ckpt", **options)
    return before.seen + after.seen, after


OPTIONS = {
    "plain": {},
    "validation": {"validation": numbered},
    "validation every 2": {
        "validation": numbered,
        "val_check_interval": 2,
        "check_val_every_n_epoch": None,
    },
    "short epochs": {"limit_train_batches": 3},
}


@pytest.fixture(scope="module", params=OPTIONS)
def uninterrupted(request, tmp_path_factory):
    options = OPTIONS[request.param]
    return fit(Recorder(), tmp_path_factory.mktemp("whole"), **options), options


@pytest.mark.parametrize(
    "kill_after", [1, 3, STEPS_AN_EPOCH, STEPS_AN_EPOCH + 1, 3 * STEPS_AN_EPOCH]
)
def test_a_killed_run_continues_with_the_next_batch(tmp_path, kill_after, uninterrupted):
    whole, options = uninterrupted
    steps, after = killed_run(tmp_path, kill_after, **options)
    assert steps == whole.seen
    assert torch.equal(after.weight, whole.weight)


def test_lightning_sees_the_stream(uninterrupted):
    batches = TrainingBatches(numbered(), BATCH_SIZE, seed=3)
    stream = [batch for _ in range(4) for batch in rows(batches)]
    assert uninterrupted[0].seen == stream[: 3 * STEPS_AN_EPOCH + 2]


def test_killed_between_accumulated_batches(tmp_path):
    options = {"accumulate_grad_batches": 2, "max_steps": 6}
    whole = fit(Recorder(), tmp_path / "whole", **options)
    steps, after = killed_run(tmp_path / "killed", 3, **options)
    assert steps[:2] + steps[3:] == whole.seen
    assert torch.equal(after.weight, whole.weight)


def test_validation_in_a_trainer(tmp_path):
    module = fit(Recorder(), tmp_path, validation=numbered, num_sanity_val_steps=0)
    assert flat(module.validated) == list(range(NUM_SEQUENCES)) * 3


class RankRecorder(Recorder):
    """Leaves what its rank has seen in a file: a process of its own has no other way."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_train_end(self):
        torch.save([self.seen, self.validated], self.folder / f"{self.global_rank}.pt")


def test_two_processes_share_the_batches_of_one(tmp_path):
    if not torch.distributed.is_gloo_available():
        pytest.skip("two processes need gloo")
    options = {"validation": partial(numbered, 7), "num_sanity_val_steps": 0}
    alone = fit(Recorder(), tmp_path / "alone", **options)
    fit(RankRecorder(tmp_path), tmp_path / "both", devices=2, strategy="ddp_spawn", **options)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for kind, expected in enumerate([alone.seen, alone.validated]):
        parts = [rank[kind] for rank in ranks]
        assert len(parts[0]) == len(parts[1]) == len(expected)
        joined = [sorted(first + second) for first, second in zip(*parts, strict=True)]
        assert joined == [sorted(batch) for batch in expected]


def test_blocks_are_made_once_and_when_needed():
    made = []

    def make(name):
        return lambda: made.append(name) or numbered()

    data = TokenDataModule(make("train"), make("validation"), batch_size=2)
    assert made == []
    data.setup("validate")
    assert made == ["validation"]
    data.setup("fit")
    data.setup("fit")
    assert made == ["validation", "train"]
    assert len(data.train_dataloader()) == len(data.val_dataloader()) == 11


def test_nothing_to_train_or_validate_on():
    data = TokenDataModule(batch_size=2)
    data.setup("fit")
    with pytest.raises(ValueError, match="train: expected token sequences to train on, got none"):
        data.train_dataloader()
    with pytest.raises(ValueError, match=r"validation: .* got none; .*limit_val_batches=0"):
        data.val_dataloader()
