"""Verdicts, their margins, and bounds that cross, against oracles in plain Python."""

import math
import re
import statistics

import oracles
import pytest
import scipy.stats
from report_runs import ESTIMATORS, NUM, WAYS, Run, measured, strict, verdict_of

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import RunParts, measure_regimes
from tube_lightning.metrics.intervals import t95
from tube_lightning.report import InconsistentBoundsError, write_report
from tube_lightning.report.estimates import TextSize, check_consistency, regime_estimates
from tube_lightning.report.verdict import Verdict


@pytest.fixture(scope="module")
def run():
    return Run()


@pytest.mark.parametrize(
    ("shift", "exact", "winner", "start", "reason"),
    [
        (2.0, True, "arm", "The ARM wins: its perplexity", "nats per token apart over"),
        (-2.0, True, "model", "The any-order model wins: its", "exactly, below the ARM's"),
        (
            0.07,
            True,
            None,
            "Not distinguishable: the any-order model's",
            "interval of the difference",
        ),
        (3.0, False, "arm", "The ARM wins: its perplexity", "in expectation (TUBE)"),
        (-3.0, False, "model", "The any-order model wins", "in expectation (ELBO_K)"),
        (0.0, False, None, "Not distinguishable: the any-order model's", "the bracket holds it"),
    ],
)
def test_verdicts(tmp_path, shift, exact, winner, start, reason):
    verdict = verdict_of(Run(arm_shift=shift).soften(), tmp_path, exact=exact)
    sentence = verdict.sentence()
    assert verdict.winner == winner
    assert sentence.startswith(start)
    assert reason in sentence
    assert "equal" not in sentence
    values = verdict.regime.values
    assert f"{math.exp(-values['arm'].nats_per_token):.4f}"[:5] in sentence


@pytest.mark.parametrize("shift", [2.0, 0.07, -2.0])
def test_p_values_are_students(tmp_path, shift):
    run = Run(arm_shift=shift)
    told = verdict_of(run, tmp_path).comparison()
    nats, error = run.corpus(differences_to_the_arm(run))
    below = scipy.stats.t.cdf(nats / error, run.degrees)
    assert told["by"] == "exact"
    assert told["nats_per_token"] == pytest.approx(nats)
    assert told["p_arm_is_better"] == pytest.approx(below, rel=1e-6)
    assert told["p_model_is_better"] == pytest.approx(1 - below, rel=1e-6)
    assert told["ci95"] == pytest.approx([nats - run.t95 * error, nats + run.t95 * error])
    assert (told["winner"] is None) == (told["ci95"][0] < 0 < told["ci95"][1])


def differences_to_the_arm(run):
    return [
        [ours - arm for ours, arm in zip(*rows, strict=True)]
        for rows in zip(run.exact["ao_arm"], run.arm, strict=True)
    ]


def test_the_margin_of_a_verdict_is_that_of_paired_differences(run, tmp_path):
    values = measured(run, tmp_path)["ao_arm"].values
    nats, error = run.corpus(differences_to_the_arm(run))
    difference = values["exact_minus_arm"]
    assert difference.nats_per_token == pytest.approx(nats, rel=1e-9)
    assert difference.standard_error == pytest.approx(error, rel=1e-7)
    assert error < values["exact"].standard_error / 2  # shared sequences cancel


def test_the_margin_in_the_verdict_is_what_is_tested(tmp_path):
    """Against the jackknife over documents, by leaving each out."""
    run = Run(sequences=200, arm_shift=1.5)
    verdict = verdict_of(run, tmp_path)

    def difference(left_out=None):
        kept = [i for i in run.ids if i != left_out]
        tokens = sum(sum(run.tokens[i]) for i in kept)
        ours, arm = (
            sum(v for i in kept for v, n in zip(rows[i], run.tokens[i], strict=True) if n)
            for rows in (run.exact["ao_arm"], run.arm)
        )
        return (arm - ours) / tokens

    without = [difference(i) for i in run.ids]
    error = statistics.pstdev(without) * math.sqrt(len(without) - 1)
    found = re.search(
        r"\((\S+) \+- (\S+) nats per token apart over 200 documents\)", verdict.sentence()
    )
    assert float(found[1]) == pytest.approx(difference(), abs=1e-4)
    assert float(found[2]) == pytest.approx(1.972 * error, rel=0.02)


@pytest.mark.parametrize("degrees", [1, 2, 2.7, 3, 5, 10, 11, 12, 30, 200, 5000])
def test_t95_holds_95_percent_of_students_distribution(degrees):
    """By the trapezoidal rule on its density, in the angle t = sqrt(v) tan(a)."""
    end, steps = math.atan(t95(degrees) / math.sqrt(degrees)), 20_000
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)

    def density(angle):
        return math.exp(log_scale + (degrees - 1) * math.log(math.cos(angle))) / math.sqrt(math.pi)

    inside = math.fsum(density(end * (k + 0.5) / steps) for k in range(steps)) * end / steps
    assert 2 * inside == pytest.approx(0.95, abs=1e-8)


def test_one_sequence_has_no_interval():
    assert math.isnan(t95(0))


def test_without_an_arm_the_verdict_is_the_bracket(run, tmp_path):
    sentence = verdict_of(run, tmp_path, exact=False, arm=False).sentence()
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
    assert results["verdict"].startswith("No winner: 1 document cannot tell how far chance goes;")
    assert results["comparison"]["winner"] is None
    assert (
        "No intervals: errors cannot be told from 1 sequence of 1 document"
        in (tmp_path / "table.md").read_text()
    )


@pytest.mark.parametrize(
    ("sequences", "documents", "words"),
    [
        (30, 1, "over 30 documents)"),
        (12, 1, "over only 12 documents, with the information of 12 of one size)"),
        (30, 5, "over only 6 documents, with the information of 6 of one size)"),
        (30, 0, "along 30 sequences)"),
        (30, 30, "along 30 sequences of one document)"),
        (2, 1, "No winner: 2 documents cannot tell"),
        (12, 0, "No winner: 12 sequences cannot tell"),
        (12, 12, "No winner: 1 document cannot tell"),
    ],
)
def test_verdicts_say_what_they_rest_on(tmp_path, sequences, documents, words):
    """One sequence named a winner, two did not."""
    for exact in (True, False):
        run = Run(sequences=sequences, documents=documents, arm_shift=3.0).soften()
        verdict = verdict_of(run, tmp_path / str(exact), exact=exact)
        assert words in verdict.sentence()
        assert verdict.winner == (None if "No winner" in words else "arm")


def test_windows_of_one_document_are_no_new_text(tmp_path):
    """Eight copies of each window, in its document, shrank the error by sqrt(8)."""
    once = Run(sequences=12, arm_shift=0.1)
    copied = Run(sequences=12, arm_shift=0.1)
    copied.ids = list(range(12 * 8))
    for name in ("documents", "tokens", "bytes", "arm", "continuous"):
        setattr(copied, name, [row for row in getattr(once, name) for _ in range(8)])
    for name in ("scores", "exact", "exact_elbo", "pi"):
        values = getattr(once, name).items()
        setattr(copied, name, {key: [r for r in rows for _ in range(8)] for key, rows in values})
    one, eight = (measured(r, tmp_path / str(len(r.ids)))["ao_arm"] for r in (once, copied))
    for name, value in one.values.items():
        assert value.error.method == eight.values[name].error.method == "documents"
        assert eight.values[name].standard_error == pytest.approx(value.standard_error)
        assert eight.values[name].margin == pytest.approx(value.margin)


def test_a_tube_that_is_not_to_be_trusted_names_no_winner(tmp_path):
    """Few blocks with uneven orderings: TUBE may lie below log p, and then the ARM seems to win."""
    heavy = Run(sequences=6, arm_shift=8.0)
    verdict = verdict_of(heavy, tmp_path / "few", exact=False)
    assert verdict.regime.tail["warning"]
    assert verdict.p_values["arm"] < 0.025
    assert verdict.winner is None
    assert verdict.comparison()["winner"] is None
    assert "TUBE rests on too few blocks" in verdict.sentence()
    assert verdict_of(heavy, tmp_path / "exact").winner == "arm"
    assert verdict_of(heavy.soften(), tmp_path / "mild", exact=False).winner == "arm"


def test_one_ordering_is_compared_by_the_elbo(tmp_path):
    parts = RunParts(Run(arm_shift=3.0).write(tmp_path, exact=False), 3, num_orderings=1)
    verdict = Verdict.of(*measure_regimes(parts, EstimatorSettings(**ESTIMATORS)))
    told = verdict.comparison()
    assert (told["by"], told["winner"], told["p_arm_is_better"]) == ("elbo_k", None, None)
    assert told["nats_per_token"] == verdict.regime.values["elbo_k_minus_arm"].nats_per_token
    assert "TUBE needs two orderings or more" in verdict.sentence()


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
            margin = difference.margin
            crossed += 0 < difference.nats_per_token < margin
            violated = regime_estimates(values, TextSize())["elbo_k"]["violated"]
            assert violated is (difference.nats_per_token > margin)
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


# Nats and perplexity


def paired(run, regime, bound):
    return [
        [float(bound(block)) - exact for block, exact in zip(*rows, strict=True)]
        for rows in zip(run.scores[regime], run.exact[regime], strict=True)
    ]


@pytest.mark.usefixtures("no_figures")
def test_few_blocks_say_that_perplexity_is_another_matter(tmp_path):
    """What is true "in expectation" for nats is false for exp(-nats) of few blocks."""
    few = Run(sequences=6)
    told = write_report(few.write(tmp_path / "few"), show=False)
    errors = [
        min(few.corpus(few.blockwise(regime, bound))[1], few.corpus(paired(few, regime, bound))[1])
        for regime in WAYS
        for bound in (oracles.tube_loo, oracles.elbo_k, oracles.elbo)
    ]
    assert told["perplexity_bias"] == pytest.approx(max(errors) ** 2 / 2, rel=1e-6)
    assert (
        "Perplexities of bounds may be too high by up to"
        in (tmp_path / "few" / "table.md").read_text()
    )
    assert (
        "hold in expectation over orderings, for nats per token"
        in (tmp_path / "few" / "table.md").read_text()
    )
    one = write_report(Run(sequences=1).write(tmp_path / "one"), show=False)
    assert one["perplexity_bias"] is None
    many = Run(sequences=400).soften(0.01)
    told = write_report(many.write(tmp_path / "many"), show=False)
    assert told["counts"]["blocks"] > 1000
    assert told["perplexity_bias"] == 0
    assert "may be too high" not in (tmp_path / "many" / "table.md").read_text()
