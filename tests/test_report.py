"""results.json against oracles in plain Python, number by number."""

import math
import shutil
from collections import defaultdict

import oracles
import pytest
from report_runs import NUM, WAYS, Run, measured, strict

from tube_lightning.measure import RunParts, parts
from tube_lightning.report import write_report
from tube_lightning.report.__main__ import main
from tube_lightning.report.estimates import TextSize, regime_estimates


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
        bits = -nats * sum(map(sum, run.tokens)) / math.log(2) / sum(map(sum, run.bytes))
        assert estimate["bits_per_byte"] == pytest.approx(bits, rel=1e-12)
        assert estimate["standard_error"] == pytest.approx(error, rel=1e-7)
        assert estimate["degrees_of_freedom"] == pytest.approx(run.degrees, rel=1e-9)
        assert estimate["error_method"] == "documents"
        margin = run.t95 * error
        if margin - nats > 700:  # a surrogate so bad that no float holds the interval
            assert estimate["ci95"] is None
        else:
            interval = [math.exp(-(nats + margin)), math.exp(-(nats - margin))]
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
        "sequences": 5, "documents": 5, "blocks": blocks, "tokens": tokens,
        "bytes": sum(map(sum, run.bytes)), "bytes_per_word": None, "batches": 3, "orderings": NUM,
    }  # fmt: skip
    assert results["schema_version"] == 4
    assert results["seconds"]["scoring"] == pytest.approx(1.5)
    assert results["data"]["token_sha256"] == "ab12"
    assert list(results["regimes"]) == list(WAYS)


@pytest.mark.usefixtures("no_figures")
def test_one_rule_for_the_marks_of_all_columns(tmp_path):
    """A wrong side within the error was marked in some columns and not in others."""
    seen = defaultdict(set)
    for seed in range(6):
        run = Run(seed=seed)
        told = write_report(run.write(tmp_path / str(seed)), show=False)
        for regime, estimates in told["regimes"].items():
            want = expected(run, regime)
            for name, estimate in estimates.items():
                if name == "exact":
                    assert estimate["wrong_side"] is estimate["violated"] is None
                    continue
                paired = [
                    [float(ours) - exact for ours, exact in zip(*rows, strict=True)]
                    for rows in zip(want[name], want["exact"], strict=True)
                ]
                above, error = run.corpus(paired)
                wrong_by = above if estimate["side"] == "lower" else -above
                wrong = wrong_by > 1e-9 * abs(run.corpus(want["exact"])[0])
                assert estimate["wrong_side"] is wrong
                assert estimate["violated"] is (wrong and wrong_by > run.t95 * error)
                seen[estimate["bound_preserving"]].add((wrong, estimate["violated"]))
    assert seen[False] == {(False, False), (True, False), (True, True)}
    assert (True, False) in seen[True]


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
        for name, estimate in regime_estimates(
            values, TextSize(results["counts"]["bytes"])
        ).items():
            for rate in ("nats_per_token", "bits_per_byte"):
                want = results["regimes"][regime][name][rate]
                assert estimate[rate] == pytest.approx(want, rel=1e-13)


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


def test_missing_parts_are_counted(run, tmp_path, capsys):
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
    assert len(list(RunParts(tmp_path, 3, patience=30.0))) == 3


def test_the_file_of_another_batch_is_refused(run, tmp_path, capsys):
    scores = run.write(tmp_path) / "scores"
    shutil.copy(scores / "batch_000000.parquet", scores / "batch_000001.parquet")
    assert main([str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert (
        "batch_000001.parquet: expected scores that evaluate.py wrote, got those of batch 0"
        in message
    )


def test_a_bank_is_not_cut(tmp_path, capsys):
    Run(bank=True).write(tmp_path)
    assert main([str(tmp_path), "--num-orderings", "4"]) == 2
    assert "expected none for blocks that share a bank" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "match"),
    [
        ("--cubo-beta", "0.5", "cubo_beta: expected a number of at least 1, got 0.5"),
        ("--cubo-beta", "nan", "cubo_beta: expected a number of at least 1, got nan"),
        ("--tvo-partitions", "0", "tvo_partitions: expected a whole number of at least 1, got 0"),
        ("--isvgb-pairs", "0", "isvgb_pairs: expected a whole number of at least 1, got 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(reported, capsys, option, value, match):
    assert main([str(reported), option, value]) == 2
    assert match in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (None, "got no run.json"),
        ("{}", "run.json: expected the record of an evaluation by this version: it lacks ['config"),
        ("{", "run.json: expected the record of an evaluation by this version: Expecting property"),
        ("3", "a JSON object, got int"),
    ],
)
def test_a_directory_without_a_run_is_refused(tmp_path, capsys, text, match):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    assert main([str(tmp_path)]) == 2
    assert match in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("model", {}, "model.block_size: expected a whole number of at least 1, got None"),
        ("model", None, "model: expected an object, got None"),
        ("data", {}, "data.source: expected a text, got None"),
        ("versions", 3, "versions: expected an object, got 3"),
        ("config", "x", "config: expected an object, got 'x'"),
        ("num_batches", None, "num_batches: expected a whole number of at least 1, got None"),
        ("paper_table", ["owt"], "paper_table: expected a name or null, got ['owt']"),
        ("protocol", {"bank": True}, "num_reseeds: expected at least 1 re-seed of a bank"),
        ("protocol", {"colour": 1}, "unexpected keyword argument 'colour'"),
        ("estimators", {"toy_size": 1}, "of no estimator that is registered here"),
    ],
)
def test_damaged_records_are_named(run, tmp_path, capsys, name, value, match):
    run.write(tmp_path, **{name: value})
    assert main([str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "run.json: expected the record of an evaluation by this version: " in message
    assert match in message


@pytest.mark.parametrize(("number", "match"), [("0", "at least 1"), ("9", "at most the 8")])
def test_orderings_that_are_not_there_are_refused(reported, tmp_path, capsys, number, match):
    options = ["--num-orderings", number, "--output", str(tmp_path)]
    assert main([str(reported), *options]) == 2
    assert match in capsys.readouterr().err
