"""Verdicts, their margins, and bounds that cross, against oracles in plain Python."""

import math
import re
import statistics

import pytest
from report_runs import NUM, T95_OF_FIVE, WAYS, Run, measured, strict

from tube_lightning.metrics.intervals import t95
from tube_lightning.report import InconsistentBoundsError, write_report
from tube_lightning.report.estimates import check_consistency, regime_estimates
from tube_lightning.report.verdict import verdict_sentence


@pytest.fixture(scope="module")
def run():
    return Run()


@pytest.mark.parametrize(
    ("shift", "exact", "start", "reason"),
    [
        (2.0, True, "The ARM wins: its perplexity", "exactly (difference"),
        (-2.0, True, "The any-order model wins: its perplexity is", "exactly, below the ARM's"),
        (0.07, True, "Undecided: the any-order model's perplexity", "within the sampling error"),
        (3.0, False, "The ARM wins: its perplexity", "at least"),
        (-3.0, False, "The any-order model wins", "at most"),
        (0.0, False, "Undecided: the bracket [", "contains the ARM's"),
    ],
)
def test_verdicts(tmp_path, shift, exact, start, reason):
    regimes = measured(Run(arm_shift=shift), tmp_path, exact=exact)
    sentence = verdict_sentence(regimes)
    assert sentence.startswith(start)
    assert reason in sentence
    assert f"{math.exp(-regimes['ao_arm'].values['arm'].nats_per_token):.4f}"[:5] in sentence


def test_the_margin_of_a_verdict_is_that_of_paired_differences(run, tmp_path):
    values = measured(run, tmp_path)["ao_arm"].values
    differences = [
        [ours - arm for ours, arm in zip(*rows, strict=True)]
        for rows in zip(run.exact["ao_arm"], run.arm, strict=True)
    ]
    nats, error = run.corpus(differences)
    assert values["exact_minus_arm"] == pytest.approx(
        (nats, error, 5, sum(map(sum, run.tokens))), rel=1e-7
    )
    assert error < values["exact"].standard_error / 2  # shared sequences cancel


def test_the_margin_in_the_verdict_is_that_of_a_difference_of_perplexities(tmp_path):
    """Against the jackknife over sequences, on perplexities that are far apart."""
    run = Run(sequences=200, arm_shift=1.5)
    sentence = verdict_sentence(measured(run, tmp_path))

    def difference(left_out=None):
        kept = [i for i in run.ids if i != left_out]
        tokens = sum(sum(run.tokens[i]) for i in kept)
        ours, arm = (
            sum(v for i in kept for v, n in zip(rows[i], run.tokens[i], strict=True) if n)
            for rows in (run.exact["ao_arm"], run.arm)
        )
        return math.exp(-ours / tokens) - math.exp(-arm / tokens)

    without = [difference(i) for i in run.ids]
    error = statistics.pstdev(without) * math.sqrt(len(without) - 1)
    found = re.search(r"\(difference (\S+) \+- (\S+)\)", sentence)
    assert float(found[1]) == pytest.approx(difference(), abs=1e-4)
    assert float(found[2]) == pytest.approx(1.972 * error, rel=0.02)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 11, 12, 30, 200, 5000])
def test_t95_holds_95_percent_of_students_distribution(degrees):
    """By the trapezoidal rule on its density, in the angle t = sqrt(v) tan(a)."""
    end, steps = math.atan(t95(degrees + 1) / math.sqrt(degrees)), 20_000
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)

    def density(angle):
        return math.exp(log_scale + (degrees - 1) * math.log(math.cos(angle))) / math.sqrt(math.pi)

    inside = math.fsum(density(end * (k + 0.5) / steps) for k in range(steps)) * end / steps
    assert 2 * inside == pytest.approx(0.95, abs=2e-5)


def test_one_sequence_has_no_interval():
    assert math.isnan(t95(1))


def test_without_an_arm_the_verdict_is_the_bracket(run, tmp_path):
    sentence = verdict_sentence(measured(run, tmp_path, exact=False, arm=False))
    assert "at least" in sentence
    assert "at most" in sentence
    assert "in expectation" in sentence
    assert "there is no ARM to compare it with" in sentence


@pytest.mark.usefixtures("no_figures")
def test_one_sequence_has_values_and_no_errors(tmp_path):
    one = Run(sequences=1, arm_shift=3.0)
    write_report(one.write(tmp_path), show=False)
    results = strict((tmp_path / "results.json").read_text())
    exact = results["regimes"]["ao_arm"]["exact"]
    assert exact["nats_per_token"] == pytest.approx(one.corpus(one.exact["ao_arm"])[0], rel=1e-12)
    assert exact["ci95"] is None
    assert exact["standard_error"] is None
    assert "its error is unknown" in results["verdict"]


# Bounds that cross


@pytest.mark.usefixtures("no_figures")
def test_corrupted_exact_values_are_an_error_after_all_is_written(tmp_path):
    broken = Run(sequences=30)
    broken.exact["nfe_2"] = [[value + 5 for value in row] for row in broken.exact["nfe_2"]]
    with pytest.raises(InconsistentBoundsError, match=r"nfe_2: expected tube.* at least exact"):
        write_report(broken.write(tmp_path), show=False)
    results = strict((tmp_path / "results.json").read_text())
    assert results["regimes"]["nfe_2"]["tube"]["violated"] is True
    assert (tmp_path / "table.md").exists()


def test_exact_values_that_are_too_low_are_an_error(tmp_path):
    broken = Run(sequences=30)
    broken.exact["ao_arm"] = [[value - 5 for value in row] for row in broken.exact["ao_arm"]]
    regimes = measured(broken, tmp_path)
    with pytest.raises(InconsistentBoundsError, match=r"ao_arm: expected elbo.* at most exact"):
        check_consistency(regimes)


def test_chance_is_no_error_and_no_violation(tmp_path):
    """Bounds that hold in expectation may be on the wrong side within their errors."""
    crossed = 0
    for seed in range(4):
        regimes = measured(Run(seed=seed), tmp_path / str(seed))
        check_consistency(regimes)
        for values in regimes.values():
            difference = values.values["elbo_k_minus_exact"]
            margin = T95_OF_FIVE * difference.standard_error
            crossed += 0 < difference.nats_per_token < margin
            assert regime_estimates(values, None)["elbo_k"]["violated"] in (
                False,
                difference.nats_per_token > margin,
            )
    assert crossed


def test_a_text_that_the_model_cannot_make(tmp_path):
    """Where p(x) = 0 every perplexity is infinite; the report says so, and draws what it can."""
    impossible = Run()
    for regime in WAYS:
        impossible.scores[regime][1][0] = [-math.inf] * NUM
        impossible.exact[regime][1][0] = impossible.exact_elbo[regime][1][0] = -math.inf
    write_report(impossible.write(tmp_path), show=True)
    results = strict((tmp_path / "results.json").read_text())
    for name in ("exact", "elbo", "elbo_k", "tube", "tube_split", "cubo", "tvo", "isvgb"):
        estimate = results["regimes"]["ao_arm"][name]
        assert (estimate["ppl"], estimate["nats_per_token"]) == (None, None)
        assert estimate["bits_per_byte"] is None
        assert not estimate["violated"]
    assert results["verdict"].startswith("The ARM wins")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "bracket.png",
        "bracket.svg",
    }


def test_infinite_bounds_are_null_and_zero(tmp_path):
    extreme = Run()
    extreme.scores["ao_arm"][0][0] = [0.0] + [-math.inf] * (NUM - 1)
    write_report(extreme.write(tmp_path), show=False)
    estimates = strict((tmp_path / "results.json").read_text())["regimes"]["ao_arm"]
    assert (estimates["tube"]["ppl"], estimates["tube"]["nats_per_token"]) == (0.0, None)
    assert estimates["tube"]["bits_per_byte"] is None
    assert estimates["elbo_k"]["bits_per_byte"] > 0
    assert (estimates["elbo"]["ppl"], estimates["elbo"]["nats_per_token"]) == (None, None)
    assert estimates["elbo_k"]["ppl"] > 0
