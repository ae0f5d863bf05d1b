"""Corpus metrics: sums, standard errors and reductions against plain formulas."""

import math
from decimal import Decimal

import lightning
import numpy as np
import pytest
import torch

from tests import oracles
from tests.ranks import on_ranks
from tube_lightning.bounds import EstimatorSettings, TangentTerms
from tube_lightning.metrics import (
    LikelihoodBound,
    arm_quantities,
    corpus_metrics,
    exact_quantities,
    packed_sums,
    sampled_quantities,
    surrogate_tubes,
)
from tube_lightning.metrics import measured as computed
from tube_lightning.records import map_tensors
from tube_lightning.scores import RegimeScores, RegimeView

SEQUENCES, BLOCKS, ORDERINGS = 7, 3, 8
SETTINGS = EstimatorSettings(cubo_beta=3.0, tvo_partitions=20, isvgb_pairs=4)
ORACLES = {
    "elbo": oracles.elbo,
    "elbo_k": oracles.elbo_k,
    "cubo": lambda scores: oracles.cubo(scores, 3),
    "tvo": lambda scores: oracles.tvo_upper(scores, 20),
    "tube": oracles.tube_loo,
    "tube_split": oracles.tube_split,
    "isvgb": lambda scores: oracles.isvgb(scores, 4),
}
STATES = ("sum_nats", "log_sum_ratio", "sum_squares", "sum_products")


def all_quantities():
    sampled = sampled_quantities(ORDERINGS, SETTINGS)
    return (*sampled, *exact_quantities(), *surrogate_tubes(["pi"]), *arm_quantities(["arm"]))


def corpus(spread=1.0, seed=0):
    """Scores of documents of several lengths: blocks after the end hold what nobody may count."""
    rng = np.random.default_rng(seed)
    num_tokens = rng.integers(1, 5, size=(SEQUENCES, BLOCKS))
    num_tokens[1, 2] = num_tokens[4, 1] = num_tokens[4, 2] = 0
    scores = -8 + spread * rng.standard_normal((SEQUENCES, BLOCKS, ORDERINGS))
    per_block = -8 + rng.standard_normal((4, SEQUENCES, BLOCKS))
    per_block[:, num_tokens == 0] = 1e6
    exact, exact_elbo, pi, arm = map(torch.from_numpy, per_block)
    regime = RegimeScores(torch.from_numpy(scores), exact, exact_elbo, left_to_right=pi)
    return RegimeView(regime, {"arm": arm}), torch.from_numpy(num_tokens)


def view_of(scores, **values):
    """A regime that has little."""
    return RegimeView(RegimeScores(scores, **values), {})


def rows_of(view, rows):
    """Some of the sequences."""
    return map_tensors(lambda _, tensor: tensor[rows], view)


def block_values(name, view):
    """Each block's value by the oracles, one at a time."""
    regime = view.regime
    fixed = {"exact": regime.exact, "elbo_exact": regime.exact_elbo, "arm": view.arms["arm"]}
    if name in fixed:
        return fixed[name].numpy()
    values = np.empty(regime.scores.shape[:2])
    for at in np.ndindex(values.shape):
        scores = regime.scores[at].tolist()
        if name == "tube_psi_pi":
            values[at] = oracles.tube(scores, regime.left_to_right[at].item())
        else:
            values[at] = ORACLES[name](scores)
    return values


def expected_values(values, num_tokens):
    """The rate of a ratio of sums, and its standard error over sequences, in numpy."""
    num_tokens = num_tokens.numpy()
    nats = np.where(num_tokens > 0, values, 0).sum(axis=1)
    tokens = num_tokens.sum(axis=1)
    rate = nats.sum() / tokens.sum()
    residuals = nats - rate * tokens
    count = len(tokens)
    error = math.sqrt(count / (count - 1) * (residuals**2).sum()) / tokens.sum()
    return rate, error, tokens.sum()


def assert_same(got, want):
    assert (got.error.degrees, got.error.method) == (want.error.degrees, "independent")
    numbers = want.nats_per_token, want.standard_error, want.num_tokens
    assert (got.nats_per_token, got.standard_error, got.num_tokens) == pytest.approx(
        numbers, rel=1e-12
    )


def assert_values(computed, expected, **tolerance):
    rate, error, tokens = expected
    assert computed.nats_per_token == pytest.approx(rate, **tolerance)
    assert computed.standard_error == pytest.approx(error, **tolerance)
    assert computed.num_tokens == tokens


def updated(quantities, regime, num_tokens, batches):
    metrics = corpus_metrics(quantities)
    for rows in batches:
        metrics.update(rows_of(regime, rows), num_tokens[rows])
    return metrics


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_values_and_standard_errors(spread):
    regime, num_tokens = corpus(spread)
    quantities = all_quantities()
    got = computed(updated(quantities, regime, num_tokens, [[0, 1, 2], [3], [4, 5, 6]]))
    names = {*ORACLES, "exact", "elbo_exact", "tube_psi_pi", "arm"}
    assert set(got) == {quantity.name for quantity in quantities} == names
    for quantity in quantities:
        values = block_values(quantity.name, regime)
        assert_values(got[quantity.name], expected_values(values, num_tokens), rel=1e-11)
        torch.testing.assert_close(quantity.values(regime), torch.from_numpy(values))


@pytest.mark.parametrize(
    "batches",
    [[[0, 1, 2, 3, 4, 5, 6]], [[6, 5, 4, 3, 2, 1, 0]], [[3], [0], [6], [1], [5], [2], [4]]],
    ids=["one", "reversed", "alone"],
)
def test_order_and_batches_change_nothing(batches):
    regime, num_tokens = corpus()
    want = computed(updated(all_quantities(), regime, num_tokens, [[0, 1, 2, 3], [4, 5, 6]]))
    got = computed(updated(all_quantities(), regime, num_tokens, batches))
    for name, values in want.items():
        assert_same(got[name], values)


def test_blocks_without_tokens_count_nothing():
    regime, num_tokens = corpus()
    metrics = updated(all_quantities(), regime, num_tokens, [range(SEQUENCES)])
    counted = num_tokens > 0
    others = {"regime.exact": math.nan, "regime.scores": -1.0}

    def change(path, values):
        here = counted[..., None] if path == "regime.scores" else counted
        return values.where(here, torch.tensor(others.get(path, 0.0)).double())

    other = map_tensors(change, regime)
    assert computed(updated(all_quantities(), other, num_tokens, [range(SEQUENCES)])) == computed(
        metrics
    )
    before = computed(metrics)
    nothing = torch.zeros(1, BLOCKS, dtype=torch.int64)
    metrics.update(rows_of(other, [0]), nothing)  # one token, given: a sequence that counts none
    for name, values in computed(metrics).items():
        assert values.nats_per_token == before[name].nats_per_token
        assert values.num_tokens == before[name].num_tokens


def test_one_sequence_has_no_standard_error():
    regime, num_tokens = corpus()
    metrics = updated(all_quantities(), regime, num_tokens, [[2]])
    for values in computed(metrics).values():
        assert math.isfinite(values.nats_per_token)
        assert math.isnan(values.standard_error)


def of_terms(log_psi, log_ratio):
    """A tangent bound whose two parts are given."""
    parts = (torch.tensor(part, dtype=torch.float64)[..., None] for part in (log_psi, log_ratio))
    terms = TangentTerms(*parts)
    metric = LikelihoodBound(lambda scores: terms)
    metric.update(None, torch.ones(terms.log_psi.shape[:-1], dtype=torch.int64))
    return metric


def test_ratios_stay_in_log_space():
    """Where exp overflows the state still has all its digits, and the value is an honest inf."""
    metric = of_terms([[-1000.0, -2000.0], [-3.0, -4.0]], [[800.0, 801.0], [1.0, -50.0]])
    want = float((Decimal(800).exp() + Decimal(801).exp()).ln())
    assert metric.log_sum_ratio.item() == pytest.approx(want, rel=1e-15)
    assert metric.compute().item() == math.inf
    none = of_terms([[-5.0, -6.0]], [[-math.inf, -math.inf]])
    assert none.log_sum_ratio.item() == -math.inf
    assert none.compute().item() == (-5 - 6 - 2) / 2


def test_heavy_tails_keep_their_digits():
    """Ratios from e^-30 to e^30, each in an update of its own, against 60 digits."""
    metric = LikelihoodBound(surrogate_tubes(["pi"])[0].read)
    log_ratios = np.random.default_rng(3).uniform(-30, 30, size=300)
    log_psi = torch.full((1, 1), -40.0, dtype=torch.float64)
    for log_ratio in log_ratios:
        scores = torch.tensor([[[-40.0 + log_ratio]]], dtype=torch.float64)
        metric.update(view_of(scores, left_to_right=log_psi), torch.tensor([[1]]))
    offsets = [Decimal(-40.0 + x) - Decimal(-40) for x in log_ratios]
    want = sum(Decimal(-41) + offset.exp() for offset in offsets) / 300
    assert metric.compute().item() == pytest.approx(float(want), rel=1e-12)


@pytest.mark.parametrize(
    "cast",
    [
        lambda metrics: metrics.to(torch.bfloat16),
        lambda metrics: metrics.half(),
        lambda metrics: torch.nn.ModuleDict({"regime": metrics}).bfloat16()["regime"],
        lambda metrics: metrics.to(torch.float16).float(),
    ],
    ids=["to bfloat16", "half", "in a module", "there and back"],
)
def test_precision_of_the_module_is_not_theirs(cast):
    regime, num_tokens = corpus()
    want = computed(updated(all_quantities(), regime, num_tokens, [range(SEQUENCES)] * 2))
    metrics = cast(updated(all_quantities(), regime, num_tokens, [range(SEQUENCES)]))
    metrics.update(regime, num_tokens)
    got = computed(metrics)
    for name, metric in metrics.items():
        assert {getattr(metric, state).dtype for state in STATES} == {torch.float64}
        assert metric.num_tokens.dtype == torch.int64
        assert got[name] == want[name]
    metrics.reset()
    assert all(metric.sum_nats.dtype == torch.float64 for _, metric in metrics.items())


class Counting(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.metrics = corpus_metrics(all_quantities())
        self.regime, self.num_tokens = corpus()

    def test_step(self, batch, batch_idx):
        assert self.layer.weight.dtype == torch.bfloat16
        rows = batch.tolist()
        self.metrics.update(rows_of(self.regime, rows), self.num_tokens[rows])


class Batches:
    """A loader that Lightning cannot take for several."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return (torch.tensor(rows) for rows in self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
def test_trainer_in_pure_bfloat16(tmp_path):
    trainer = lightning.Trainer(
        accelerator="cpu",
        precision="bf16-true",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Counting()
    batches = [[0, 1, 2], [3, 4], [5, 6]]
    trainer.test(module, Batches(batches), verbose=False)
    got = computed(module.metrics)
    assert got == computed(updated(all_quantities(), *corpus(), batches))


def test_ties_on_the_first_batch_merge_nothing():
    """All orders alike: every bound is the same value at first, and must not stay so."""
    regime, num_tokens = corpus()
    tied = map_tensors(lambda _, values: torch.full_like(values, -8.0), regime)
    metrics = corpus_metrics(all_quantities())
    metrics.update(tied, num_tokens)
    assert len({round(v.nats_per_token, 9) for v in computed(metrics).values()}) == 1
    metrics.update(regime, num_tokens)
    both = computed(metrics)
    assert len({round(v.nats_per_token, 9) for v in both.values()}) == len(both)
    assert both["elbo"].nats_per_token < both["elbo_k"].nats_per_token
    assert both["elbo_k"].nats_per_token < both["tube"].nats_per_token


def test_nan_is_refused_and_counts_nothing():
    regime, num_tokens = corpus()
    metrics = updated(all_quantities(), regime, num_tokens, [range(SEQUENCES)])
    before = computed(metrics)
    values = regime.regime.exact.clone()
    values[3, 0] = math.nan
    with pytest.raises(ValueError, match="exact: expected a number, got nan in row 3"):
        metrics["exact"].update(view_of(regime.regime.scores, exact=values), num_tokens)
    values = regime.regime.scores.clone()
    values[2, 1, 4] = math.nan
    for name in ORACLES:
        with pytest.raises(ValueError, match=r"scores: .*nan at index \(2, 1, 4\)"):
            metrics[name].update(view_of(values), num_tokens)
    assert computed(metrics) == before


def test_what_is_not_in_the_scores_is_named():
    regime = view_of(torch.zeros(1, 1, 2, dtype=torch.float64))
    for quantity, message in (
        (exact_quantities()[0], "exact: expected values for every block, got none"),
        (exact_quantities()[1], "exact_elbo: expected values for every block, got none"),
        (arm_quantities(["arm_ft"])[0], r"arm_ft: expected one of \[\] in these scores"),
        (surrogate_tubes(["pi"])[0], r"surrogate: expected one of \[\], got 'pi'"),
    ):
        with pytest.raises(ValueError, match=message):
            quantity.read(regime)


def test_guarantees_are_the_estimators():
    sides = {q.name: (q.side, q.bound_preserving) for q in all_quantities()}
    assert sides == {
        "elbo": ("lower", True),
        "elbo_k": ("lower", True),
        "elbo_exact": ("lower", True),
        "tube": ("upper", True),
        "tube_split": ("upper", True),
        "tube_psi_pi": ("upper", True),
        "cubo": ("upper", False),
        "tvo": ("upper", False),
        "isvgb": ("upper", False),
        "exact": (None, True),
        "arm": (None, True),
    }


def test_few_orderings_allow_few_estimators():
    every_number = {"elbo", "elbo_k", "cubo", "tvo"}
    tangents = {"tube", "tube_split"}
    for num_orderings, names in {
        0: set(),
        1: every_number,
        2: every_number | tangents,
        6: every_number | tangents,
        8: every_number | tangents | {"isvgb"},
    }.items():
        quantities = sampled_quantities(num_orderings, EstimatorSettings())
        assert {quantity.name for quantity in quantities} == names
        regime = view_of(torch.zeros(1, 1, max(1, num_orderings), dtype=torch.float64))
        for quantity in quantities:
            assert quantity.values(regime).tolist() == [[0.0]]


# ---- several processes

FORKED = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@FORKED
@pytest.mark.parametrize("shares", [[[0, 1, 2, 3], [4, 5, 6]], [[0, 1], [], [2, 3, 4, 5, 6]]])
def test_ranks_reduce_to_one_process(tmp_path, shares):
    """One of three ranks has no batch at all."""
    regime, num_tokens = corpus(spread=3.0)

    def on_one(rank):
        batches = [shares[rank]] if shares[rank] else []
        metrics = updated(all_quantities(), regime, num_tokens, batches)
        return {name: metric.measured() for name, metric in metrics.items()}, packed_sums(metrics)

    alone = computed(updated(all_quantities(), regime, num_tokens, [range(SEQUENCES)]))
    every = on_ranks(len(shares), on_one, tmp_path / "ranks")
    told = computed(corpus_metrics(all_quantities()), [sums for _, sums in every])
    for got in [told, *(values for values, _ in every)]:
        for name, values in alone.items():
            assert_same(got[name], values)


@FORKED
def test_a_rank_without_a_new_batch_joins_the_next_reduction(tmp_path):
    """Three batches on two ranks, values after each turn: the second turn has one batch only."""
    regime, num_tokens = corpus()
    quantities = [quantity for quantity in all_quantities() if quantity.name == "tube"]

    def on_one(rank):
        metrics = updated(quantities, regime, num_tokens, [[rank]])
        first = metrics["tube"].measured()
        if rank == 0:
            metrics.update(rows_of(regime, [2]), num_tokens[[2]])
        return first, metrics["tube"].measured()

    turns = [
        computed(updated(quantities, regime, num_tokens, [rows])) for rows in ([0, 1], [0, 1, 2])
    ]
    for got in on_ranks(2, on_one, tmp_path / "ranks"):
        for mine, want in zip(got, turns, strict=True):
            assert_same(mine, want["tube"])
