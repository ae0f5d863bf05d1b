"""results.json against oracles in plain Python, number by number."""

import json
import math
import shutil

import oracles
import pytest
import torch
from report_runs import ESTIMATORS, NUM, WAYS, Run

from tube_lightning.metrics import EstimatorSettings
from tube_lightning.report import InconsistentBoundsError, parts, write, write_report
from tube_lightning.report.__main__ import main
from tube_lightning.report.estimates import check_consistency, regime_estimates
from tube_lightning.report.measurement import measure_regimes
from tube_lightning.report.parts import RunParts
from tube_lightning.report.tails import GapTail
from tube_lightning.report.verdict import verdict_sentence
from tube_lightning.report.views import reported_views
from tube_lightning.score_files import RegimeScores


@pytest.fixture
def no_figures(monkeypatch):
    """Leave out the slow part where it is not what is tested."""
    monkeypatch.setattr(write, "_write_figures", lambda *_: None)


def strict(text):
    """Parse JSON that has no NaN and no infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def run():
    return Run()


@pytest.fixture(scope="module")
def reported(run, tmp_path_factory):
    folder = run.write(tmp_path_factory.mktemp("run"))
    write_report(folder, show=False)
    return folder


@pytest.fixture(scope="module")
def results(reported):
    return strict((reported / "results.json").read_text())


def measured(run, folder, **options):
    directory = run.write(folder, **options)
    batches = reported_views(
        RunParts(directory, -(-len(run.ids) // 2)), EstimatorSettings(**ESTIMATORS), None
    )
    return measure_regimes(batches, EstimatorSettings(**ESTIMATORS))[0]


def expected(run, regime):
    """List all values of the blocks of a regime, by the oracles."""
    of_scores = {
        "elbo": oracles.elbo,
        "elbo_k": oracles.elbo_k,
        "cubo": lambda s: oracles.cubo(s, 2),
        "tvo": lambda s: oracles.tvo_upper(s, 7),
        "isvgb": lambda s: oracles.isvgb(s, 2),
        "tube": oracles.tube_loo,
        "tube_split": oracles.tube_split,
    }
    values = {name: run.blockwise(regime, function) for name, function in of_scores.items()}
    for name, log_psi in (("pi", run.pi[regime]), ("arm", run.arm)):
        values[f"tube_psi_{name}"] = [
            [oracles.tube(s, psi) for s, psi in zip(*rows, strict=True)]
            for rows in zip(run.scores[regime], log_psi, strict=True)
        ]
    return values | {"exact": run.exact[regime], "elbo_exact": run.exact_elbo[regime]}


@pytest.mark.parametrize("regime", WAYS)
def test_every_value_agrees_with_the_oracles(run, results, regime):
    want = expected(run, regime)
    assert results["regimes"][regime].keys() == want.keys()
    for name, estimate in results["regimes"][regime].items():
        nats, error = run.corpus(want[name])
        assert estimate["nats_per_token"] == pytest.approx(nats, rel=1e-12)
        assert estimate["ppl"] == pytest.approx(math.exp(-nats), rel=1e-11)
        assert estimate["standard_error"] == pytest.approx(error, rel=1e-7)
        if 1.96 * error - nats > 700:  # a surrogate so bad that no float holds the interval
            assert estimate["ci95"] is None
        else:
            interval = [math.exp(-(nats + 1.96 * error)), math.exp(-(nats - 1.96 * error))]
            assert estimate["ci95"] == pytest.approx(interval, rel=1e-6)


def test_estimates_say_what_they_promise(results):
    upper, lower = {"tube", "tube_split", "tube_psi_pi", "tube_psi_arm"}, {"elbo", "elbo_k"}
    for estimates in results["regimes"].values():
        for name, estimate in estimates.items():
            side = "lower" if name in lower | {"elbo_exact"} else "upper"
            assert estimate["side"] == (None if name == "exact" else side)
            biased = name in ("cubo", "tvo", "isvgb")
            assert estimate["bound_preserving"] is (not biased)
            assert side == "lower" or biased or name in upper | {"exact"}


def test_the_arm_and_the_counts(run, results):
    nats, error = run.corpus(run.arm)
    assert results["arm"]["nats_per_token"] == pytest.approx(nats, rel=1e-12)
    assert results["arm"]["standard_error"] == pytest.approx(error, rel=1e-9)
    assert results["arm_ft"] is None
    blocks = sum(n > 0 for row in run.tokens for n in row)
    tokens = sum(map(sum, run.tokens))
    assert results["counts"] == {
        "sequences": 5, "blocks": blocks, "tokens": tokens, "batches": 3, "orderings": NUM,
    }  # fmt: skip
    assert results["seconds"]["scoring"] == pytest.approx(1.5)
    assert results["data"]["token_sha256"] == "ab12"
    assert list(results["regimes"]) == list(WAYS)


def test_violations_are_those_of_the_exact_values(run, results):
    signs = set()
    for regime, estimates in results["regimes"].items():
        want = expected(run, regime)
        exact, _ = run.corpus(want["exact"])
        for name in ("cubo", "tvo", "isvgb"):
            nats, _ = run.corpus(want[name])
            violated = nats < exact - 1e-9 * abs(exact)
            assert estimates[name]["violated"] is violated
            signs.add(violated)
        assert estimates["exact"]["violated"] is None
        assert not estimates["elbo_exact"]["violated"]
    assert signs == {True, False}


def test_tails_name_the_block_with_the_largest_gap(run, results):
    for regime in ("nfe_2", "ao_arm"):
        gaps = {
            (s, b): float(oracles.tube_loo(block) - oracles.elbo_k(block))
            for s, row in enumerate(run.scores[regime])
            for b, block in enumerate(row)
            if run.tokens[s][b]
        }
        largest = max(gaps, key=gaps.__getitem__)
        tail = results["tails"][regime]
        share = gaps[largest] / sum(gaps.values())  # 0.1% of 14 blocks: one
        assert tail["top_permille_share"] == pytest.approx(share, rel=1e-9)
        assert (tail["largest_block"]["sequence"], tail["largest_block"]["block"]) == largest
        assert tail["largest_block"]["nats"] == pytest.approx(gaps[largest], rel=1e-9)
    assert results["tails"]["nfe_1"]["top_permille_share"] is None  # rounding is no gap


def test_the_tail_takes_a_thousandth_of_many_blocks():
    scores = torch.randn(11, 100, 6, generator=torch.Generator().manual_seed(0)).double()
    tail = GapTail()
    for rows in torch.arange(11).split(4):
        tail.update(RegimeScores(scores[rows]), rows, torch.ones(len(rows), 100).long())
    gaps = [float(oracles.tube_loo(s) - oracles.elbo_k(s)) for s in scores.flatten(0, 1).tolist()]
    share = sum(sorted(gaps)[-2:]) / sum(gaps)
    assert tail.compute()["top_permille_share"] == pytest.approx(share, rel=1e-9)


def test_the_order_of_writing_does_not_matter(run, reported, tmp_path):
    write_report(run.write(tmp_path, backwards=True), show=False)
    ours, theirs = (strict((d / "results.json").read_text()) for d in (tmp_path, reported))
    for results in (ours, theirs):
        results["seconds"].pop("report")
    assert ours == theirs
    for name in ("bracket.svg", "surrogates.svg", "cubo_heatmap.svg", "convergence.svg"):
        assert (tmp_path / "figures" / name).read_bytes() == (
            reported / "figures" / name
        ).read_bytes()


def test_parts_in_small_slices_give_the_same(run, results, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_MAX_BLOCKS", 1)
    for regime, values in measured(run, tmp_path).items():
        for name, estimate in regime_estimates(values).items():
            want = results["regimes"][regime][name]["nats_per_token"]
            assert estimate["nats_per_token"] == pytest.approx(want, rel=1e-13)


@pytest.mark.usefixtures("no_figures")
def test_the_command_line_takes_other_settings_from_the_same_parts(run, reported, tmp_path):
    before = (reported / "results.json").read_bytes()
    options = ["--cubo-beta", "3", "--tvo-partitions", "5", "--isvgb-pairs", "1"]
    assert main([str(reported), *options, "--num-orderings", "4", "--output", str(tmp_path)]) == 0
    got = strict((tmp_path / "results.json").read_text())
    assert got["counts"]["orderings"] == 4
    assert got["estimators"] == {"cubo_beta": 3.0, "tvo_partitions": 5, "isvgb_pairs": 1}
    for name, function in (
        ("cubo", lambda s: oracles.cubo(s[:4], 3)),
        ("tvo", lambda s: oracles.tvo_upper(s[:4], 5)),
        ("isvgb", lambda s: oracles.isvgb(s[:4], 1)),
        ("tube", lambda s: oracles.tube_loo(s[:4])),
    ):
        nats, _ = run.corpus(run.blockwise("ao_arm", function))
        estimate = got["regimes"]["ao_arm"][name]
        assert estimate["nats_per_token"] == pytest.approx(nats, rel=1e-12)
    assert (reported / "results.json").read_bytes() == before


def test_missing_parts_are_counted(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parts, "PATIENCE_SECONDS", 0.0)
    run.write(tmp_path)
    (tmp_path / "scores" / "batch_000001.parquet").unlink()
    assert main([str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "expected 3 batches, got 2 (1 missing)" in message
    assert "same evaluate command" in message


def test_parts_that_come_late_are_waited_for(run, tmp_path, monkeypatch):
    run.write(tmp_path)
    late, hidden = tmp_path / "scores" / "batch_000002.parquet", tmp_path / "hidden"
    shutil.move(late, hidden)
    monkeypatch.setattr(parts.time, "sleep", lambda _: shutil.move(hidden, late))
    assert len(list(RunParts(tmp_path, 3))) == 3


@pytest.mark.parametrize(
    ("text", "match"),
    [(None, "got no run.json"), ("{}", "got none of"), ("{", "Expecting property name")],
)
def test_a_directory_without_a_run_is_refused(tmp_path, capsys, text, match):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    assert main([str(tmp_path)]) == 2
    assert match in capsys.readouterr().err


@pytest.mark.parametrize(("number", "match"), [("0", "at least 1"), ("9", "at most the 8")])
def test_orderings_that_are_not_there_are_refused(reported, tmp_path, capsys, number, match):
    options = ["--num-orderings", number, "--output", str(tmp_path)]
    assert main([str(reported), *options]) == 2
    assert match in capsys.readouterr().err


# Verdicts


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
    assert values["exact_minus_arm"] == pytest.approx((nats, error), rel=1e-7)
    assert error < values["exact"].standard_error / 2  # shared sequences cancel


def test_without_an_arm_the_verdict_is_the_bracket(run, tmp_path):
    sentence = verdict_sentence(measured(run, tmp_path, exact=False, arm=False))
    assert "between" in sentence
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
            crossed += 0 < difference.nats_per_token < 1.96 * difference.standard_error
            assert regime_estimates(values)["elbo_k"]["violated"] in (
                False,
                difference.nats_per_token > 1.96 * difference.standard_error,
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
    assert (estimates["elbo"]["ppl"], estimates["elbo"]["nats_per_token"]) == (None, None)
    assert estimates["elbo_k"]["ppl"] > 0
