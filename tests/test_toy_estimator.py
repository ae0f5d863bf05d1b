"""A new estimator is a function and a line of the table: everything else finds it there."""

import csv
import math
import os
import statistics
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from evaluation_runs import QUIET, ROOT, results, run_here, write_tokens

from tube_lightning.bounds import (
    ESTIMATORS,
    Estimator,
    EstimatorSettings,
    Setting,
    guarantee,
    register_estimator,
)
from tube_lightning.report.__main__ import main as report


@guarantee("upper", bound_preserving=False)
def largest(scores, factor=3.0):
    """The largest score and a constant: no bound at all."""
    return scores.double().max(dim=-1).values + math.log(factor)


@guarantee("lower", bound_preserving=True)
def smallest(scores):
    """The smallest score: a lower bound, and a bad one."""
    return scores.double().min(dim=-1).values


TOYS = (
    Estimator(
        "toy", "TOY", largest, (Setting("factor", 3.0, 1, "factor of TOY"),), "TOY_{factor:g}",
        marker="P",
    ),
    Estimator("low", "LOW", smallest, fewest=2),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _toys():
    for toy in TOYS:
        register_estimator(toy)


def columns_of(text):
    """The titles of the first table in Markdown."""
    head = next(line for line in text.splitlines() if line.startswith("| regime"))
    return [cell.strip().replace("\\", "") for cell in head.strip("|").split(" | ")]


def resamples(row, scores, num_reseeds):
    """Yield the draws of a block: the scores, or those at places that Philox names."""
    if not num_reseeds:
        yield scores
    for reseed in range(num_reseeds):
        counter = [row["block"] * -(-len(scores) // 4), 0, reseed, 2]
        words = np.random.Philox(key=[0, row["sequence"]], counter=counter).random_raw(len(scores))
        yield [scores[int((int(word) >> 11) * 2.0**-53 * len(scores))] for word in words]


def corpus_nats(directory, regime, function, num_reseeds=0):
    """Nats per token of a function of scores, from the files alone."""
    total = tokens = 0.0
    for path in sorted((directory / "scores").iterdir()):
        for row in pq.read_table(path).to_pylist():
            if row["num_tokens"]:
                draws = resamples(row, row[f"regimes.{regime}.scores"], num_reseeds)
                total += statistics.fmean(map(function, draws))
                tokens += row["num_tokens"]
    return total / tokens


@pytest.mark.parametrize("protocol", ["default", "paper"])
def test_a_toy_is_everywhere(monkeypatch, capsys, tmp_path, protocol):
    options = [*write_tokens(tmp_path, 5), "batch_size=2", "output_dir=run"]
    options += [f"protocol={protocol}", "estimators.toy_factor=2"]
    run_here(monkeypatch, tmp_path, *options)
    directory, told = tmp_path / "run", results(tmp_path / "run")
    assert told["estimators"]["toy_factor"] == 2.0
    for regime, estimates in told["regimes"].items():
        toy, low = estimates["toy"], estimates["low"]
        assert (toy["side"], toy["bound_preserving"]) == ("upper", False)
        assert (low["side"], low["bound_preserving"]) == ("lower", True)
        if protocol == "default":
            want = corpus_nats(directory, regime, lambda s: max(s) + math.log(2))
            assert toy["nats_per_token"] == pytest.approx(want, rel=1e-12)
            want = corpus_nats(directory, regime, min)
            assert low["nats_per_token"] == pytest.approx(want, rel=1e-12)
        else:  # the mean over ten resamples of the bank
            for estimate, of_scores in ((toy, lambda s: max(s) + math.log(2)), (low, min)):
                want = corpus_nats(directory, regime, of_scores, num_reseeds=10)
                assert estimate["nats_per_token"] == pytest.approx(want, rel=1e-12)
                assert estimate["std"] is not None
    out = capsys.readouterr().out
    assert "TOY_2" in out
    assert "CUBO, TVO, IS-VG-B and TOY (biased) promise nothing" in out
    titles = columns_of((directory / "table.md").read_text())
    biased = ["CUBO_2 (biased)", "TVO (biased)", "IS-VG-B (biased)", "TOY_2 (biased)"]
    bounds = ["TUBE", "exact", "ELBO_K", "ELBO", "LOW"]
    assert titles == ["regime", *biased, *bounds, "|TUBE - ARM|"]
    latex = (directory / "table.tex").read_text()
    assert r"\multicolumn{4}{c}{biased}" in latex
    assert r"TOY\_2" in latex
    figure = (directory / "figures" / "bracket.svg").read_text()
    assert "<!-- TOY (biased) -->" in figure
    assert "<!-- LOW (at most) -->" in figure
    with (directory / "logs" / "version_0" / "metrics.csv").open() as file:
        curves = list(csv.DictReader(file))
    if protocol == "default":
        want = told["regimes"]["ao_arm"]["toy"]["ppl"]
        assert float(curves[-1]["ao_arm/toy_ppl"]) == pytest.approx(want, rel=1e-9)
    assert float(curves[-1]["ao_arm/low_ppl"]) > float(curves[-1]["ao_arm/elbo_k_ppl"])
    assert report([str(directory), "--toy-factor", "5", "--output", str(tmp_path / "again")]) == 0
    again = results(tmp_path / "again")["regimes"]["ao_arm"]["toy"]["nats_per_token"]
    moved = corpus_nats(directory, "ao_arm", lambda _: math.log(5 / 2))
    before = told["regimes"]["ao_arm"]["toy"]["nats_per_token"]
    assert again == pytest.approx(before + moved, rel=1e-9)


def test_settings_are_checked_by_the_line():
    assert EstimatorSettings(toy_factor=1)["toy_factor"] == 1.0
    with pytest.raises(ValueError, match="toy_factor: expected a number of at least 1, got 0"):
        EstimatorSettings(toy_factor=0)
    unknown = r"estimators: expected cubo_beta, .*, got toy_size, of no estimator"
    with pytest.raises(ValueError, match=unknown):
        EstimatorSettings(toy_size=1)


@pytest.mark.parametrize("name", ["tube", "toy", "my toy", "_toy", "Toy", ""])
def test_names_are_new_and_can_be_options(name):
    with pytest.raises(ValueError, match=rf"expected a new name .* got \['{name}'\]"):
        register_estimator(Estimator(name, "X", smallest))


def test_one_that_is_registered_later_has_its_defaults():
    settings = EstimatorSettings()
    late = Estimator("late", "LATE", largest, (Setting("factor", 2.0, 1, "factor"),))
    register_estimator(late)
    scores = torch.tensor([-1.0, -2.0])
    assert late.with_settings(settings)(scores).item() == pytest.approx(-1 + math.log(2))


def test_odd_titles_are_written_as_they_are(monkeypatch, capsys, tmp_path):
    """What means something to matplotlib, rich, Markdown, LaTeX or argparse is escaped for it."""
    title = r"100% of $x_1$ [red]z[/red] *a* {b} & #~^"
    setting = Setting("factor", 2.0, 1, "50% of it")
    register_estimator(Estimator("odd", title, largest, (setting,)))
    run_here(monkeypatch, tmp_path, *write_tokens(tmp_path, 3), "output_dir=run")
    out = capsys.readouterr().out
    assert "[red]" in out
    assert r"\*a\*" in (tmp_path / "run" / "table.md").read_text()
    assert r"100\% of \$x\_1\$" in (tmp_path / "run" / "table.tex").read_text()
    with pytest.raises(SystemExit) as stop:
        report(["--help"])
    assert stop.value.code == 0
    assert "50% of it" in capsys.readouterr().out


def test_few_orderings_leave_it_out():
    low = ESTIMATORS["low"]
    assert [low.fits(n, EstimatorSettings()) for n in (1, 2, 3)] == [False, True, True]
    assert low.with_settings(EstimatorSettings())(torch.tensor([-1.0, -2.0])).item() == -2.0


ONE_RANK_HAS_MORE = """
import runpy, sys
from tests.test_toy_estimator import TOYS
from tube_lightning.bounds import register_estimator
register_estimator(TOYS[1])
sys.argv[0] = {script!r}  # what Lightning starts for the other ranks
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.slow
def test_processes_with_other_estimators_do_not_wait_for_each_other(tmp_path):
    program = ONE_RANK_HAS_MORE.format(script=str(ROOT / "evaluate.py"))
    options = [*write_tokens(tmp_path, 5), "batch_size=2", "output_dir=run", "trainer.devices=2"]
    ran = subprocess.run(
        [sys.executable, "-c", program, *options],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=os.environ | QUIET | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    assert ran.returncode == 1
    assert "rank 1: expected the quantities of rank 0, differs in ao_arm/low, " in ran.stderr
