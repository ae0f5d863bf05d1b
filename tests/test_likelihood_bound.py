"""LikelihoodBound as people use metrics of torchmetrics: in loops, collections and processes."""

import copy
import math
import pickle
from functools import partial

import lightning
import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection

from tests import oracles
from tests.ranks import on_ranks
from tube_lightning.bounds import ESTIMATORS, cubo, elbo_k, tube_kfold
from tube_lightning.metrics import LikelihoodBound

ORACLES = {
    "elbo": oracles.elbo,
    "elbo_k": oracles.elbo_k,
    "cubo": lambda scores: oracles.cubo(scores, 2),
    "tvo": lambda scores: oracles.tvo_upper(scores, 200),
    "isvgb": lambda scores: oracles.isvgb(scores, 2),
    "tube": oracles.tube_loo,
    "tube_split": oracles.tube_split,
}
NUM_BATCHES = 4


def batches(seed=0, shape=(3, 2)):
    """Scores of blocks, and their numbers of tokens: one block in each batch has none."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(NUM_BATCHES):
        scores = torch.randn(*shape, 4, generator=generator) - 5
        num_tokens = torch.randint(1, 5, shape, generator=generator)
        num_tokens.flatten()[-1] = 0
        yield scores, num_tokens


def expected(function, counted):
    nats = tokens = 0.0
    for scores, num_tokens in counted:
        for block, number in zip(scores.flatten(0, -2), num_tokens.flatten(), strict=True):
            if number:
                nats += float(function(block.double().tolist()))
                tokens += int(number)
    return nats / tokens


def test_every_estimator_has_an_oracle():
    assert ORACLES.keys() == ESTIMATORS.keys()


@pytest.mark.parametrize("shape", [(3, 2), (6,)], ids=["blocks", "one block each"])
@pytest.mark.parametrize("name", ORACLES)
def test_values_by_name(name, shape):
    metric = LikelihoodBound(name)
    for scores, num_tokens in batches(shape=shape):
        metric.update(scores, num_tokens)
    want = expected(ORACLES[name], batches(shape=shape))
    assert metric.compute().dtype == torch.float64
    assert metric.compute().item() == pytest.approx(want, rel=1e-12)
    metric.reset()
    metric.update(*next(batches(7, shape)))
    want = expected(ORACLES[name], [next(batches(7, shape))])
    assert metric.compute().item() == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(
    ("bound", "oracle"),
    [
        (elbo_k, oracles.elbo_k),
        (partial(cubo, beta=3.0), lambda s: oracles.cubo(s, 3)),
        (partial(tube_kfold, folds=2), lambda s: oracles.tube_kfold(s, 2)),
        (lambda scores: scores.double().mean(dim=-1), oracles.elbo),
    ],
    ids=["function", "settings", "terms", "own"],
)
def test_values_of_functions(bound, oracle):
    metric = LikelihoodBound(bound)
    for scores, num_tokens in batches():
        metric.update(scores, num_tokens)
    assert metric.compute().item() == pytest.approx(expected(oracle, batches()), rel=1e-12)


def test_ratios_of_a_partial_stay_in_log_space():
    metric = LikelihoodBound(partial(tube_kfold, folds=2))
    metric.update(torch.tensor([[-2000.0, 0.0]]), torch.tensor([3]))
    assert metric.log_sum_ratio.item() == pytest.approx(2000 - math.log(2), rel=1e-12)
    assert metric.compute().item() == math.inf


def test_calling_it_gives_the_batch_and_counts_it():
    metric = LikelihoodBound("tube")
    seen = []
    for batch in batches():
        seen.append(batch)
        alone = expected(oracles.tube_loo, [batch])
        assert metric(*batch).item() == pytest.approx(alone, rel=1e-12)
        together = expected(oracles.tube_loo, seen)
        assert metric.compute().item() == pytest.approx(together, rel=1e-12)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize(
    "copied",
    [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, lambda m: m.clone()],
    ids=["pickle", "deepcopy", "clone"],
)
def test_copies_go_on_by_themselves(name, copied):
    first, *others = batches()
    metric = copied(LikelihoodBound(name))
    metric.update(*first)
    other = copied(metric)
    for batch in others:
        other.update(*batch)
    assert metric.compute().item() == pytest.approx(expected(ORACLES[name], [first]), rel=1e-12)
    want = expected(ORACLES[name], [first, *others])
    assert other.compute().item() == pytest.approx(want, rel=1e-12)


def test_in_a_collection_with_its_groups():
    """As people write it: compute groups on, and a first batch on which all bounds tie."""
    names = ("elbo", "elbo_k", "tube", "tube_split", "isvgb")
    metrics = MetricCollection({name: LikelihoodBound(name) for name in names}, prefix="val/")
    tied = torch.full((2, 2, 4), -3.0), torch.ones(2, 2, dtype=torch.int64)
    for batch in (tied, *batches()):
        metrics.update(*batch)
    for name in names:
        want = expected(ORACLES[name], [tied, *batches()])
        assert metrics.compute()[f"val/{name}"].item() == pytest.approx(want, rel=1e-12)


def test_states_are_saved_loaded_and_merged():
    """By names that do not depend on how many metrics there were before."""
    first, *others = batches()
    metric, other = LikelihoodBound("tube"), LikelihoodBound("tube")
    for one in (metric, other):
        one.persistent(True)
    metric.update(*first)
    other.load_state_dict(metric.state_dict())
    other.update(*others[0])
    want = expected(oracles.tube_loo, [first, others[0]])
    assert other.measured().nats_per_token == pytest.approx(want, rel=1e-12)  # compute() is cached
    rest = LikelihoodBound("tube")
    for batch in others[1:]:
        rest.update(*batch)
    other.merge_state(rest)
    want = expected(oracles.tube_loo, [first, *others])
    assert other.compute().item() == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("shape", [(0, 2), (0,)])
@pytest.mark.parametrize("name", ORACLES)
def test_empty_batches_count_nothing(name, shape):
    metric = LikelihoodBound(name)
    first = next(batches())
    metric.update(*first)
    before = metric.measured()
    metric.update(torch.zeros(*shape, 4), torch.zeros(shape, dtype=torch.int64))
    assert metric.measured() == before


def test_it_plots():
    metric = LikelihoodBound("tube")
    values = [metric(*batch) for batch in batches()]
    for arguments in ((), (values,)):
        figure, axes = metric.plot(*arguments)
        assert axes.lines
        figure.clear()


def test_keywords_are_those_of_metrics():
    assert LikelihoodBound("tube", sync_on_compute=False).sync_on_compute is False
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `colour`"):
        LikelihoodBound("tube", colour="blue")


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"bound: expected one of cubo, .*, got 'tubes'"):
        LikelihoodBound("tubes")
    metric = LikelihoodBound("tube")
    with pytest.raises(ValueError, match=r"num_tokens: expected one number for each block, \(3, 2"):
        metric.update(torch.zeros(3, 2, 4), torch.ones(3).long())
    with pytest.raises(ValueError, match="num_tokens: expected 0 or more, got -1"):
        metric.update(torch.zeros(2, 4), torch.tensor([3, -1]))
    with pytest.raises(ValueError, match=r"num_tokens: expected whole numbers, got torch\.float32"):
        metric.update(torch.zeros(2, 4), torch.tensor([3.7, 1.0]))
    with pytest.raises(ValueError, match=r"scores: expected \[batch, blocks, orderings\]"):
        metric.update(torch.zeros(4), torch.tensor(3))
    with pytest.raises(ValueError, match="scores: expected at least 2 ordering"):
        metric.update(torch.zeros(3, 1), torch.ones(3).long())


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("on_step", [False, True])
def test_processes_share_their_sums(tmp_path, on_step):
    """Two ranks with every other batch; values of a step are those of all ranks, if asked for."""

    def one_rank(rank):
        metric = LikelihoodBound("tube", dist_sync_on_step=on_step)
        steps = [metric(*batch).item() for batch in list(batches())[rank::2]]
        return steps, metric.compute().item()

    every = list(batches())
    for rank, (steps, total) in enumerate(on_ranks(2, one_rank, tmp_path / "ranks")):
        assert total == pytest.approx(expected(oracles.tube_loo, every), rel=1e-12)
        for number, value in enumerate(steps):
            turn = every[2 * number : 2 * number + 2]
            seen = turn if on_step else [turn[rank]]
            assert value == pytest.approx(expected(oracles.tube_loo, seen), rel=1e-12)


class ValidationLoop(lightning.LightningModule):
    """A user's own loop, which logs the metric itself."""

    def __init__(self, path):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.tube, self.low = LikelihoodBound("tube"), LikelihoodBound("elbo_k")
        self.path = path

    def val_dataloader(self):
        return torch.utils.data.DataLoader(range(NUM_BATCHES), batch_size=None, shuffle=False)

    def validation_step(self, number):
        scores, num_tokens = list(batches())[int(number)]
        for name in ("tube", "low"):
            metric = getattr(self, name)
            metric.update(scores, num_tokens)
            self.log(name, metric, on_epoch=True, on_step=False)

    def on_validation_epoch_end(self):
        values = {name: getattr(self, name).compute().item() for name in ("tube", "low")}
        torch.save(values, self.path / f"{self.global_rank}.pt")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    ("strategy", "devices"), [("auto", 1), pytest.param("ddp_spawn", 2, marks=pytest.mark.slow)]
)
def test_in_a_validation_loop_of_ones_own(tmp_path, strategy, devices):
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=devices,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    (logged,) = trainer.validate(ValidationLoop(tmp_path), verbose=False)
    want = {
        "tube": expected(oracles.tube_loo, batches()),
        "low": expected(oracles.elbo_k, batches()),
    }
    assert logged == pytest.approx(want, rel=1e-6)
    for rank in range(devices):
        assert torch.load(tmp_path / f"{rank}.pt") == pytest.approx(want, rel=1e-12)
