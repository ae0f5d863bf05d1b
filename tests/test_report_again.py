"""Reports with other settings in the same place, and what a bank of orderings allows to say."""

import pytest
from report_runs import Run, verdict_of

from tube_lightning.report.__main__ import main
from tube_lightning.report.render.captions import caption, legend
from tube_lightning.report.render.figures.canvas import named_level, new_figure
from tube_lightning.report.write import write_report

CURVES = {f"{name}.{suffix}" for name in ("convergence", "surrogates") for suffix in ("png", "svg")}


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_figures_that_a_report_has_not_do_not_stay(tmp_path):
    Run().write(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert names(tmp_path / "figures") >= CURVES
    assert main([str(tmp_path), "--num-orderings", "1"]) == 0
    assert names(tmp_path / "figures") == {"bracket.png", "bracket.svg"}


def test_the_table_names_the_command_that_makes_it(tmp_path):
    Run().write(tmp_path)
    assert main([str(tmp_path), "--num-orderings", "4", "--cubo-beta", "3"]) == 0
    first = (tmp_path / "table.tex").read_text().splitlines()[0]
    command = f"python -m tube_lightning.report {tmp_path.name} --cubo-beta 3.0 --num-orderings 4"
    assert first == f"% {command}"
    assert main([str(tmp_path)]) == 0
    first = (tmp_path / "table.tex").read_text().splitlines()[0]
    assert first == f"% python -m tube_lightning.report {tmp_path.name}"


@pytest.fixture(scope="module")
def of_a_bank(tmp_path_factory):
    run = Run(bank=True, elbo_seeds=3)
    folder = run.write(tmp_path_factory.mktemp("bank"), exact=False, arm=False)
    return write_report(folder, show=False)


def test_a_bank_bounds_its_own_mean(of_a_bank):
    holding = legend(of_a_bank)[0]
    assert "one bank of orderings: >= holds in expectation for a bank's mean" in holding
    assert "in expectation (TUBE of one bank) and at most" in of_a_bank["verdict"]
    assert "over 4 re-seeds (3 seeds for the ELBO)" in caption(of_a_bank)


def test_fresh_orderings_bound_the_likelihood(tmp_path):
    sentence = verdict_of(Run(arm_shift=3.0).soften(), tmp_path, exact=False).sentence()
    assert "in expectation (TUBE) (" in sentence


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("exact", [True, False])
def test_nats_stand_with_the_signs_of_a_likelihood(tmp_path, exact):
    """What is at least so large a perplexity is at most so large a likelihood."""
    results = write_report(Run().write(tmp_path, exact=exact), show=False)
    nats = {name: e["nats_per_token"] for name, e in results["regimes"]["ao_arm"].items()}
    told = f"<= {nats['tube']:.4f} and >= {nats['elbo_k']:.4f}"
    if exact:
        told = f"= {nats['exact']:.4f}"
    arm = results["arm"]["nats_per_token"]
    assert f"Nats per token: {arm:.4f} (ARM), {told} (AO-ARM); 37 tokens." in legend(results)


def test_an_estimator_that_is_not_there_is_explained(tmp_path):
    Run().write(tmp_path, estimators={"cubo_beta": 2.0, "tvo_partitions": 7, "isvgb_pairs": 3})
    results = write_report(tmp_path, show=False)
    assert "IS-VG-B needs a multiple of 6 orderings." in legend(results)


@pytest.mark.parametrize(
    ("ppl", "label"),
    [
        (5.0, "ARM: 5.0000"),
        (3.0, "ARM: 3.0000, below the plot"),
        (70.0, "ARM: 70.000, above the plot"),
        (0.2, "ARM: below 1 (tells nothing)"),
    ],
)
def test_levels_outside_of_the_plot_say_so(ppl, label):
    _, axes = new_figure("levels")
    axes.set_ylim(4.0, 6.0)
    assert named_level(axes, "ARM", ppl) == label
