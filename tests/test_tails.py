"""How few blocks and orderings TUBE rests on, against plain loops and simulations."""

import json
import math
import random
import statistics
from dataclasses import replace

import numpy as np
import oracles
import pytest
import torch
from report_runs import Run, measured
from scipy.stats import genpareto, t

from tube_lightning.bounds import elbo_k, tube_loo
from tube_lightning.measure.heaviness import effective_sample_size, pareto_k, squared_variation
from tube_lightning.measure.tails import GapTail
from tube_lightning.regimes import ANY_ORDER, Regime
from tube_lightning.scores import BlockScores, RegimeScores

INF = math.inf


def part_of(scores, num_tokens=None, sequences=None, exact=None, **positions):
    scores = torch.as_tensor(scores, dtype=torch.float64)
    return BlockScores(
        sequences=torch.arange(len(scores)) if sequences is None else torch.tensor(sequences),
        num_tokens=torch.ones(scores.shape[:2]).long()
        if num_tokens is None
        else torch.tensor(num_tokens),
        regimes={"ao_arm": RegimeScores(scores, exact=exact)},
        **{name: torch.tensor(values) for name, values in positions.items()},
    )


def tail_of(*parts, **options):
    tail = GapTail(**options)
    for part in parts:
        tail.update(part.regimes["ao_arm"], part)
    return tail.compute()


def normal_scores(sd, *shape, seed=0):
    return sd * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def ess(scores):
    weights = [math.exp(score) for score in scores]
    return sum(weights) ** 2 / sum(weight**2 for weight in weights)


def squared_variation_of(scores):
    weights = [math.exp(score) for score in scores]
    return statistics.variance(weights) / statistics.fmean(weights) ** 2


def expected(blocks):
    """Tell what a tail is by its definitions, of a list of blocks' scores."""
    gaps = [float(oracles.tube_loo(s) - oracles.elbo_k(s)) for s in blocks]
    total, ordered, sizes = sum(gaps), sorted(gaps, reverse=True), [ess(s) for s in blocks]
    varied = sum(gap * squared_variation_of(s) for gap, s in zip(gaps, blocks, strict=True))
    return {
        "top_permille_share": sum(ordered[: math.ceil(len(gaps) / 1000)]) / total,
        "top_percent_share": sum(ordered[: math.ceil(len(gaps) / 100)]) / total,
        "effective_blocks": total**2 / sum(gap**2 for gap in gaps),
        "weight_variation": varied / total,
        "effective_orderings": {
            "median": statistics.median(sizes),
            "lowest_5_percent": float(np.percentile(sizes, 5)),
            "share_below_3": sum(size < 3 for size in sizes) / len(sizes),
        },
    }


def check_numbers(tail, want):
    for name, value in want.items():
        assert tail[name] == pytest.approx(value, rel=1e-8), name


@pytest.mark.parametrize(("sequences", "blocks", "sd"), [(11, 100, 1.0), (3, 7, 2.0), (1, 1, 0.4)])
def test_a_tail_is_what_its_definitions_say(sequences, blocks, sd):
    scores = normal_scores(sd, sequences, blocks, 6)
    check_numbers(tail_of(part_of(scores)), expected(scores.flatten(0, 1).tolist()))


def test_tails_of_a_run_name_the_block_with_the_largest_gap(tmp_path):
    run = Run()
    values = measured(run, tmp_path)
    for regime in ("nfe_2", "ao_arm"):
        blocks = {
            (s, b): block
            for s, row in enumerate(run.scores[regime])
            for b, block in enumerate(row)
            if run.tokens[s][b]  # the last is absent
        }
        gaps = {at: float(oracles.tube_loo(s) - oracles.elbo_k(s)) for at, s in blocks.items()}
        largest = max(gaps, key=gaps.__getitem__)
        check_numbers(values[regime].tail, expected(list(blocks.values())))
        found = values[regime].tail["largest_block"]
        assert (found["sequence"], found["block"]) == largest
        assert found["nats"] == pytest.approx(gaps[largest], rel=1e-9)
        assert found["share"] == pytest.approx(gaps[largest] / sum(gaps.values()), rel=1e-9)
    assert values["nfe_1"].tail["top_permille_share"] is None  # rounding is no gap


LARGE, SMALL = [0.0, -9.0, -9.0], [0.0, -0.1, 0.1]


def test_the_largest_block_is_found_in_its_text():
    texts = (("a b", "c d"), ("e", ""))
    documents = [[[3, 3], [3, 4]], [[-1, 4], [-1, -1]]]
    counts = [[2, 2], [1, 0]]
    for scores, want in (
        ([[SMALL, LARGE], [SMALL, SMALL]], (8, 1, 2, 3, "c d")),
        ([[SMALL, SMALL], [LARGE, SMALL]], (2, 0, 1, 4, "e")),
        ([[SMALL, SMALL], [LARGE, [0.0, -99.0, -99.0]]], (2, 0, 1, 4, "e")),  # absent: not counted
        ([[SMALL, LARGE], [LARGE, SMALL]], (2, 0, 1, 4, "e")),  # of equal ones the first
    ):
        names = ("sequence", "block", "position", "document", "text")
        known = {"sequences": [8, 2], "num_tokens": counts}
        part = part_of(scores, **known, documents=documents)
        found = tail_of(replace(part, texts=texts))["largest_block"]
        assert tuple(found[name] for name in names) == want
        found = tail_of(part)["largest_block"]
        assert (found["position"], found["document"], found["text"]) == (want[2], want[3], None)
        found = tail_of(replace(part, documents=None))["largest_block"]
        assert (found["position"], found["document"], found["text"]) == (None, None, None)


def test_one_ordering_or_no_block_has_no_tail():
    assert tail_of(part_of([[[-1.0]]])) is None
    assert tail_of(part_of([[LARGE]], num_tokens=[[0]])) is None
    assert tail_of() is None


@pytest.mark.parametrize("block", [[-3.0] * 4, [-INF] * 4])
def test_no_gap_has_no_shares(block):
    tail = tail_of(part_of([[block] * 100]))
    none = {"top_permille_share", "top_percent_share", "largest_block", "effective_blocks"}
    assert {name for name, value in tail.items() if value is None} == none | {
        "weight_variation", "pareto_k", "warning"
    }  # fmt: skip
    assert tail["effective_orderings"] == pytest.approx(
        {"median": 4.0, "lowest_5_percent": 4.0, "share_below_3": 0.0}
    )


@pytest.mark.parametrize("infinite", [[0.0, -INF, -INF], [0.0, -800.0, -800.0]])
def test_an_infinite_gap_is_all_of_it(infinite):
    tail = tail_of(part_of([[SMALL, infinite, SMALL, infinite], [LARGE, SMALL, SMALL, SMALL]]))
    json.dumps(tail, allow_nan=False)
    assert tail["top_permille_share"] == tail["top_percent_share"] == 1.0
    found = tail["largest_block"]
    assert (found["block"], found["nats"], found["share"]) == (1, None, 1.0)
    assert tail["effective_blocks"] == 2.0
    assert tail["weight_variation"] == pytest.approx(3.0)
    assert tail["pareto_k"] is None
    assert "TUBE is infinite" in tail["warning"]
    assert tail_of(part_of([[SMALL, infinite] * 60]))["pareto_k"] is None


def test_gaps_whose_squares_overflow_have_finite_numbers():
    blocks = [[0.0, -600.0, -601.0], [0.0, -599.0, -601.0], SMALL]
    tail = tail_of(part_of([blocks]))
    assert 1 < tail["effective_blocks"] < 2
    assert math.isfinite(tail["largest_block"]["nats"])


def test_gaps_whose_sum_overflows_have_shares():
    tail = tail_of(part_of([[[0.0, -709.0]] * 8]))
    assert tail["top_percent_share"] == tail["largest_block"]["share"] == pytest.approx(1 / 8)
    assert tail["effective_blocks"] == pytest.approx(8)


def test_the_order_of_the_parts_does_not_matter():
    scores = normal_scores(2.0, 12, 20, 5)
    scores[7, 3] = scores[2, 9] = scores[4, 1] = torch.tensor([0.0, -20.0, -20.0, -20.0, -20.0])
    parts = [part_of(scores[[row]], sequences=[row]) for row in range(12)]
    whole = tail_of(part_of(scores))
    assert (whole["largest_block"]["sequence"], whole["largest_block"]["block"]) == (2, 9)
    for seed in range(5):
        random.Random(seed).shuffle(parts)
        assert tail_of(*parts) == whole
    assert tail_of(part_of(scores.flip(0), sequences=list(range(12))[::-1])) == whole


def test_a_constant_and_the_order_of_orderings_change_nothing():
    scores = normal_scores(1.5, 4, 50, 8)
    whole = tail_of(part_of(scores))
    for other in (scores + 3.0, scores.flip(-1)):
        tail = tail_of(part_of(other))
        for name in ("top_percent_share", "effective_blocks", "weight_variation", "pareto_k"):
            assert tail[name] == pytest.approx(whole[name], rel=1e-9)


@pytest.mark.parametrize("number", [1, 2, 7])
def test_the_effective_sample_size_is_between_one_and_all(number):
    scores = normal_scores(3.0, 50, number)
    sizes = effective_sample_size(scores)
    assert sizes.tolist() == pytest.approx([ess(s) for s in scores.tolist()], rel=1e-12)
    assert ((sizes >= 1) & (sizes <= number)).all()
    zeros = torch.full((number,), -INF).double()
    assert effective_sample_size(zeros) == number
    zeros[0] = -1000.0
    assert effective_sample_size(zeros) == pytest.approx(1.0)
    if number > 1:
        want = [squared_variation_of(s) for s in scores.tolist()]
        assert squared_variation(sizes, number).tolist() == pytest.approx(want, rel=1e-9)


# The Pareto index


def zhang_and_stephens(tail, excess_over):
    """Fit in plain loops: the mean of theta by its profile likelihood, then the shape."""
    x = sorted(value - excess_over for value in tail)
    n, m = len(x), 30 + math.isqrt(len(x))
    quartile = x[math.floor(n / 4 + 0.5) - 1]
    thetas = [1 / x[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * quartile) for j in range(1, m + 1)]

    def shape(theta):
        return statistics.fmean(math.log(1 - theta * value) for value in x)

    levels = [n * (math.log(-theta / shape(theta)) - shape(theta) - 1) for theta in thetas]
    weights = [1 / sum(math.exp(other - level) for other in levels) for level in levels]
    return shape(sum(theta * weight for theta, weight in zip(thetas, weights, strict=True)))


def pareto_samples(k, number, repetitions):
    rng = np.random.default_rng(0)
    return 1 + genpareto.rvs(k, size=(repetitions, number), random_state=rng)


@pytest.mark.parametrize("k", [-0.3, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("number", [100, 1000])
def test_the_index_is_that_of_the_papers(k, number):
    values = sorted(pareto_samples(k, number, 1)[0].tolist())
    size = math.ceil(min(0.2 * number, 3 * math.sqrt(number)))
    fitted = zhang_and_stephens(values[-size:], values[-size - 1])
    got = pareto_k(torch.tensor(values, dtype=torch.float64).log())
    assert got == pytest.approx((size * fitted + 5) / (size + 10), rel=1e-9)


@pytest.mark.parametrize("k", [-0.3, 0.0, 0.3, 0.7, 1.0, 1.5])
def test_the_index_of_pareto_samples_is_theirs(k):
    samples = pareto_samples(k, 2000, 30)
    indices = [pareto_k(torch.from_numpy(sample).log()) for sample in samples]
    shrunk = (135 * k + 5) / 145
    error = statistics.stdev(indices) / math.sqrt(len(indices))
    assert statistics.fmean(indices) == pytest.approx(shrunk, abs=4 * error + 0.02)
    tail = np.sort(samples[0])[-136:]
    by_scipy, _, _ = genpareto.fit(tail[1:] - tail[0], floc=0)
    assert indices[0] == pytest.approx((135 * by_scipy + 5) / 145, abs=0.1)


def test_the_index_needs_values_that_differ():
    logs = normal_scores(1.0, 100)
    assert pareto_k(logs) == pytest.approx(pareto_k(logs + 500.0), rel=1e-9)
    assert pareto_k(logs) == pareto_k(logs.flip(0))
    assert pareto_k(logs[:99]) is None
    assert pareto_k(torch.zeros(200).double()) is None
    assert pareto_k(torch.cat([logs, torch.tensor([INF]).double()])) is None
    assert pareto_k(normal_scores(2000.0, 400)) > 100  # exp of these is no float


# When to warn: log-normal scores, whose log p is known: sd^2 / 2


def simulate(sd, blocks, num_orderings, repetitions):
    """Count how often TUBE and its margin are below log p, the warning fires, and fails to."""
    below, fired, missed = 0, 0, 0
    margin = t.ppf(0.975, blocks - 1) / math.sqrt(blocks)
    everything = normal_scores(sd, repetitions, blocks, num_orderings, seed=1)
    for scores in everything.split(1):
        excess = tube_loo(scores) - sd**2 / 2
        is_below = bool(excess.mean() + margin * excess.std() < 0)
        warns = tail_of(part_of(scores))["warning"] is not None
        below, fired = below + is_below, fired + warns
        missed += is_below and not warns
    return below / repetitions, fired / repetitions, missed / repetitions


def test_tube_of_few_heavy_blocks_is_too_often_below():
    below, fired, missed = simulate(5.0, 5, 128, 400)
    assert below > 0.09  # nominally 0.025
    assert fired == 1
    assert missed == 0


@pytest.mark.parametrize("num_orderings", [8, 32, 128])
@pytest.mark.parametrize("blocks", [5, 20])
@pytest.mark.parametrize("sd", [2.0, 3.0, 5.0])
def test_few_heavy_blocks_are_warned_of(sd, blocks, num_orderings):
    assert simulate(sd, blocks, num_orderings, 40)[1] >= 0.95


@pytest.mark.parametrize("num_orderings", [8, 32, 128])
@pytest.mark.parametrize("blocks", [5, 20, 2000])
@pytest.mark.parametrize("sd", [0.3, 0.5])
def test_mild_blocks_are_not(sd, blocks, num_orderings):
    below, fired, _ = simulate(sd, blocks, num_orderings, 2 if blocks > 20 else 60)
    assert fired <= 1 / 60
    assert below <= 0.1


def test_many_blocks_of_which_few_are_heavy_are_warned_of():
    scores = normal_scores(0.3, 1, 1000, 16)
    scores[:, ::100] *= 15
    tail = tail_of(part_of(scores))
    assert tail["effective_orderings"]["median"] > 14
    assert tail["effective_blocks"] < 10
    assert tail["top_percent_share"] > 0.9
    assert "of 1,000 blocks" in tail["warning"]


def test_the_advice_is_what_can_be_done():
    scores = normal_scores(4.0, 5, 1, 16)
    gaps = tube_loo(scores) - elbo_k(scores)
    for regime, size, possible in (
        (ANY_ORDER, 4, True),
        (ANY_ORDER, 16, True),
        (ANY_ORDER, 17, False),
        (Regime(4), 16, False),
        (Regime(4), 8, True),
    ):
        documents = [[[-1, *[0] * (size - 1)]]] * 5  # the first position is given
        part = part_of(scores, num_tokens=[[size - 1]] * 5, documents=documents)
        warning = tail_of(part, regime=regime)["warning"]
        assert f"block 0 of sequence {int(gaps.argmax())} makes" in warning
        assert warning.endswith("take more orderings (protocol.num_orderings=) or more text.")
        assert (f"protocol.exact_max_block_size={size}" in warning) is possible
        assert ("exact" in warning) is possible
    assert "more banks (protocol.num_banks=)" in tail_of(part, of_a_bank=True)["warning"]
    known = tail_of(part_of(scores, exact=torch.zeros(5, 1).double()))["warning"]
    assert "rely on the exact value" in known
