"""The paper's protocol: a bank that all blocks share, resampled again and again."""

import math
import statistics

import numpy as np
import oracles
import pytest
import torch
from report_runs import ESTIMATORS, NUM, Run

from tube_lightning.bounds import EstimatorSettings, tvo_of_resamples, tvo_upper
from tube_lightning.measure import Bank, RunParts, measure_regimes
from tube_lightning.report import write_report
from tube_lightning.report.estimates import check_consistency
from tube_lightning.scores import BlockScores, RegimeScores

SEED, RESEEDS = 3, 4
SETTINGS = EstimatorSettings(**ESTIMATORS)


def part_of(sequences, blocks, num):
    """Blocks that share a bank, whose scores are their places in it."""
    scores = torch.arange(num, dtype=torch.float64).expand(len(sequences), blocks, num)
    num_tokens = torch.ones(len(sequences), blocks, dtype=torch.int64)
    return BlockScores(torch.tensor(sequences), num_tokens, {"ao_arm": RegimeScores(scores)})


def philox_places(sequence, block, reseed, num):
    """Draw the places of one block from a generator of its own, moved to the block's counter."""
    generator = np.random.Philox(key=[SEED, sequence], counter=[block * -(-num // 4), 0, reseed, 2])
    return [int((int(word) >> 11) * 2.0**-53 * num) for word in generator.random_raw(num)]


@pytest.fixture(scope="module")
def run():
    return Run(sequences=4, bank=True, elbo_seeds=3, arm_shift=2.0)


@pytest.fixture(scope="module")
def results(run, tmp_path_factory):
    folder = run.write(tmp_path_factory.mktemp("bank"))
    return write_report(folder, show=False)


def resample(run, regime, reseed):
    return [
        [
            [bank[place] for place in philox_places(sequence, block, reseed, NUM)]
            for block, bank in enumerate(row)
        ]
        for sequence, row in enumerate(run.scores[regime])
    ]


@pytest.mark.parametrize("num", [5, 8])
def test_places_are_those_of_a_stream_for_each_block(num):
    got = Bank(SEED, num_reseeds=2).places(part_of([4, 9], 3, num), num)
    for reseed, (row, sequence), block in (
        (r, s, b) for r in range(2) for s in enumerate([4, 9]) for b in range(3)
    ):
        assert got[0, reseed, row, block].tolist() == philox_places(sequence, block, reseed, num)
    banks = Bank(SEED, num_reseeds=2, num_banks=3).places(part_of([4, 9], 3, 3 * num), num)
    assert torch.equal(banks[:1], got)
    assert banks[2, 1, 0, 2].tolist() == philox_places(4, 2, 2 * 2 + 1, num)


def test_neither_company_nor_length_changes_the_draws():
    bank = Bank(1, num_reseeds=2)
    alone, together = (bank.places(part_of(*names, 6), 6) for names in (([7], 2), ([2, 7, 8], 5)))
    assert torch.equal(alone[:, :, 0], together[:, :, 1, :2])


def test_shuffles_are_orders_of_the_whole_bank():
    part = Bank(SEED, RESEEDS).shuffle(part_of(list(range(40)), 5, 24))
    order = part.regimes["ao_arm"].scores.long()
    assert torch.equal(order.sort(dim=-1).values, torch.arange(24).expand(40, 5, 24))
    means = order.double().mean(dim=(0, 1))  # each place has mean 11.5, and a deviation of 6.9
    assert (means - 11.5).abs().max() < 4 * 6.93 / math.sqrt(200)


@pytest.mark.parametrize("regime", ["nfe_2", "ao_arm"])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("cubo", lambda s: oracles.cubo(s, 2)),
        ("tvo", lambda s: oracles.tvo_upper(s, 7)),
        ("isvgb", lambda s: oracles.isvgb(s, 2)),
        ("tube", oracles.tube_loo),
        ("tube_split", oracles.tube_split),
    ],
)
def test_reseeded_perplexities_agree_with_the_oracles(run, results, regime, name, function):
    values = [
        [[function(block) for block in row] for row in resample(run, regime, reseed)]
        for reseed in range(RESEEDS)
    ]
    perplexities = [math.exp(-run.corpus(blocks)[0]) for blocks in values]
    estimate = results["regimes"][regime][name]
    assert estimate["ppl"] == pytest.approx(statistics.mean(perplexities), rel=1e-10)
    assert estimate["std"] == pytest.approx(statistics.stdev(perplexities), rel=1e-7)
    means = [
        [sum(r[s][b] for r in values) / RESEEDS for b in range(len(values[0][s]))]
        for s in range(len(values[0]))
    ]
    nats, error = run.corpus(means)
    assert estimate["nats_per_token"] == pytest.approx(nats, rel=1e-11)
    bits = -nats * sum(map(sum, run.tokens)) / math.log(2) / sum(map(sum, run.bytes))
    assert estimate["bits_per_byte"] == pytest.approx(bits, rel=1e-11)  # not of the mean perplexity
    assert estimate["standard_error"] == pytest.approx(error, rel=1e-6)


def test_elbo_k_has_the_whole_bank_and_no_spread(run, results):
    estimate = results["regimes"]["ao_arm"]["elbo_k"]
    nats, _ = run.corpus(run.blockwise("ao_arm", oracles.elbo_k))
    assert estimate["nats_per_token"] == pytest.approx(nats, rel=1e-12)
    assert "std" not in estimate


def test_the_elbo_is_the_continuous_one_of_the_any_order_row(run, results):
    perplexities = [
        math.exp(-run.corpus([[draws[seed] for draws in row] for row in run.continuous])[0])
        for seed in range(3)
    ]
    estimate = results["regimes"]["ao_arm"]["elbo"]
    assert estimate["ppl"] == pytest.approx(statistics.mean(perplexities), rel=1e-12)
    assert estimate["std"] == pytest.approx(statistics.stdev(perplexities), rel=1e-9)
    assert "elbo" not in results["regimes"]["nfe_2"]


@pytest.mark.parametrize(("partitions", "num", "scale"), [(200, 24, 3.0), (1, 4, 1.0), (7, 9, 90)])
def test_tvo_of_counts_is_tvo_of_draws(partitions, num, scale):
    generator = torch.Generator().manual_seed(0)
    bank = scale * torch.randn(3, 50, num, generator=generator).double() - 40
    bank[0, 0] = -math.inf
    bank[0, 1, 1:] = -math.inf
    bank[0, 2, 0] = -900.0
    places = torch.randint(num, (6, 3, 50, num), generator=generator)
    plain = tvo_upper(bank.expand_as(places).gather(-1, places), partitions)
    got = tvo_of_resamples(bank, places, partitions)
    torch.testing.assert_close(got, plain, rtol=1e-12, atol=0)


def test_few_orderings_leave_out_what_needs_more():
    views = Bank(SEED, num_reseeds=2).views(part_of([0], 1, 1), SETTINGS)
    assert views["ao_arm"].resampled.keys() == {"cubo", "tvo"}


def test_a_lucky_bank_is_no_inconsistency(tmp_path):
    """A bank of good orderings puts ELBO_K above log p(x): that is why the default draws fresh."""
    lucky = Run(sequences=6, bank=True)
    for regime in ("nfe_2", "ao_arm"):
        for scores, exact in zip(lucky.scores[regime], lucky.exact[regime], strict=True):
            for block, value in zip(scores, exact, strict=True):
                block[:] = [score + value + 2 - float(oracles.elbo_k(block)) for score in block]
    parts = RunParts(lucky.write(tmp_path), 3)
    regimes, _ = measure_regimes(parts, SETTINGS, Bank(SEED, RESEEDS))
    values = regimes["ao_arm"].values
    assert values["elbo_k"].nats_per_token > values["exact"].nats_per_token + 0.1
    check_consistency(regimes)
