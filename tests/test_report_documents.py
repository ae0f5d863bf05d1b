"""Tables on the screen, in Markdown and in LaTeX; the paper's numbers; the figures' files."""

import io
import re
from collections import Counter

import matplotlib.image
import numpy as np
import oracles
import pytest
from report_runs import NUM, Run
from rich.console import Console

from tube_lightning.metrics import EstimatorSettings
from tube_lightning.report import write_report
from tube_lightning.report.curves import doublings, figure_regime, measure_curves
from tube_lightning.report.documents import latex, markdown
from tube_lightning.report.paper_comparison import compare_with_paper
from tube_lightning.report.paper_tables import PAPER_TABLES
from tube_lightning.report.parts import RunParts
from tube_lightning.report.screen import show_results
from tube_lightning.report.views import shuffled_views

FIGURES = ("bracket", "surrogates", "cubo_heatmap", "convergence")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    run = Run(arm_shift=2.0)
    source = {"source": "50% of_{tiny} & text|x", "tokenizer": "byte", "token_sha256": "ab"}
    return run.write(
        tmp_path_factory.mktemp("run"), data=source, model={"block_size": 4}, paper_table="owt"
    )


@pytest.fixture(scope="module")
def results(run_folder):
    return write_report(run_folder, show=False)


@pytest.fixture(scope="module")
def folder(run_folder, results):
    assert results["verdict"]
    return run_folder


def on_screen(results):
    stream = io.StringIO()
    show_results(results, Console(file=stream, width=80))
    return stream.getvalue()


def test_the_screen_shows_every_number_uncut(results):
    text = on_screen(results)
    assert "…" not in text
    estimates = results["regimes"]["ao_arm"]
    row = next(line for line in text.splitlines() if line.lstrip().startswith("AO-ARM"))
    for name, sign in (("tube", ">= "), ("exact", "= "), ("elbo_k", "<= "), ("elbo", "<= ")):
        assert f"{sign}{estimates[name]['ppl']:.4f}" in row
    gap = abs(estimates["tube"]["ppl"] - results["arm"]["ppl"])
    assert f"{gap:.4f}" in row
    assert "The ARM wins" in " ".join(text.split())


def test_violated_cells_are_marked(results):
    text = on_screen(results)
    shown = ("cubo", "tvo", "isvgb", "tube", "elbo_k", "elbo")
    violated = [
        f"{estimates[name]['ppl']:.{4 if estimates[name]['ppl'] < 10 else 2}f}!"
        for estimates in results["regimes"].values()
        for name in shown
        if estimates[name]["violated"]
    ]
    assert sorted(re.findall(r"[0-9.]+!", text)) == sorted(violated)
    assert violated
    assert "! on the wrong side" in text


def test_one_step_is_no_bound(results):
    row = next(line for line in on_screen(results).splitlines() if "NFE = 1" in line)
    assert ">=" not in row
    assert "<=" not in row


def test_markdown_is_one_table_of_equal_rows(folder, results):
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert text == markdown(results)
    tables = re.findall(r"(?:^\|.*\|\n?)+", text, flags=re.M)
    assert len(tables) == 2  # ours, and beside the paper
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    assert f"≥ {results['regimes']['ao_arm']['tube']['ppl']:.4f}" in tables[0]
    assert "± " in text


def test_latex_is_balanced_and_escaped(folder, results):
    text = (folder / "table.tex").read_text(encoding="utf-8")
    assert text == latex(results, f"python -m tube_lightning.report {folder}")
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = "\n".join(lines)
    opened, closed = (Counter(re.findall(rf"\\{w}{{(\w+)}}", body)) for w in ("begin", "end"))
    assert opened == closed == Counter({"table": 1, "tabular": 1})
    plain = re.sub(r"\\[{}&%$#_]", "", body)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert "_" not in plain.replace("$_K$", "")
    assert r"50\% of\_\{tiny\} \& text" in body
    columns = len(re.search(r"begin{tabular}{(l?r*)}", body).group(1))
    for line in lines:
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_not_blank(folder, name):
    pixels = matplotlib.image.imread(folder / "figures" / f"{name}.png")
    assert min(pixels.shape[:2]) > 400
    ink = (np.abs(pixels[..., :3] - 1).sum(axis=-1) > 0.3).mean()
    assert 0.005 < ink < 0.95
    assert "<path" in (folder / "figures" / f"{name}.svg").read_text(encoding="utf-8")


def test_nothing_unfinished_stays(folder):
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    figures = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    parts = {f"batch_00000{number}.parquet" for number in range(3)}
    assert names == figures | parts | {"run.json", "results.json", "table.md", "table.tex"}


def test_curves_are_of_the_first_regime_in_which_orderings_matter():
    assert figure_regime(["nfe_1", "nfe_2", "ao_arm"]) == "ao_arm"
    assert figure_regime(["chunks_1", "nfe_4", "nfe_8"]) == "nfe_4"
    assert figure_regime(["nfe_1"]) is None
    assert doublings(1, 1) == [1]


def test_curves_agree_with_the_oracles(tmp_path):
    run = Run()
    run.write(tmp_path)
    curves = measure_curves(shuffled_views(RunParts(tmp_path, 3), None), "ao_arm")
    scores, half = run.scores["ao_arm"], NUM // 2

    def agrees(value, function, *columns):
        blocks = [list(map(function, *rows)) for rows in zip(scores, *columns, strict=True)]
        exact = run.exact["ao_arm"]
        paired = [
            [float(ours) - theirs for ours, theirs in zip(*rows, strict=True)]
            for rows in zip(blocks, exact, strict=True)
        ]
        want = run.corpus(blocks)[0], run.corpus(paired)[1], 5
        assert value == pytest.approx(want, rel=1e-6)

    for m in (2, 4, 8):
        agrees(curves.elbo[m], lambda s, m=m: oracles.elbo_k(s[:m]))
        agrees(curves.tube_loo[m], lambda s, m=m: oracles.tube_loo(s[:m]))
        agrees(curves.tube_split[m], lambda s, m=m: oracles.tube_split(s[:m]))
    for m in (1, 2, 4):
        agrees(curves.tube_psi[m], lambda s, m=m: oracles.tube(s[half:], oracles.elbo_k(s[:m])))
    agrees(curves.surrogates["arm"], lambda s, psi: oracles.tube(s[half:], psi), run.arm)
    agrees(curves.surrogates["pi"], lambda s, p: oracles.tube(s[half:], p), run.pi["ao_arm"])
    for n, beta in ((1, 1.0), (4, 1.5), (8, 5.0)):
        agrees(curves.cubo[n, beta], lambda s, n=n, beta=beta: oracles.cubo(s[:n], beta))
    assert len(curves.cubo) == 4 * 5
    assert curves.reference.nats_per_token == pytest.approx(run.corpus(run.exact["ao_arm"])[0])


# The paper's tables


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_the_paper_agrees_with_itself(name):
    table = PAPER_TABLES[name]
    for block_size, rows in table.rows.items():
        assert list(rows) == [f"nfe_{2**k}" for k in range(block_size.bit_length())] + ["ao_arm"]
        for regime, row in rows.items():
            assert abs(row.tube_split.ppl - table.arm - row.gap_to_arm) < 0.0101
            assert (row.elbo is not None) == (regime == "ao_arm")
            assert row.exact == (regime == "ao_arm" and block_size == 4)
            if regime == "nfe_1":
                assert len({c.ppl for c in row[:5]}) == 1
            else:
                assert row.tube_split.ppl < row.elbo_k.ppl < row.tvo.ppl < row.isvgb.ppl
                assert row.cubo.ppl < row.elbo_k.ppl  # all of its violations are in TVO and IS-VG-B


def test_our_numbers_stand_beside_the_papers(results):
    paper = results["paper"]
    assert (paper["table"], paper["block_size"]) == ("owt", 4)
    ours = results["regimes"]["ao_arm"]
    cell = paper["regimes"]["ao_arm"]["exact"]  # marked as exact there
    assert cell["paper"] == 18.46
    assert cell["difference"] == pytest.approx(ours["exact"]["ppl"] - 18.46)
    tube = paper["regimes"]["ao_arm"]["tube_split"]
    assert (tube["paper"], tube["paper_std"]) == (17.74, 0.01)
    assert tube["ours"] == ours["tube_split"]["ppl"]
    assert paper["arm"]["paper"] == 17.54
    assert "tvo" not in paper["regimes"]["ao_arm"]  # 7 partitions here, 200 there
    assert "elbo_k" in paper["regimes"]["nfe_2"]
    assert "17.74 +- 0.01" in on_screen(results)


def test_tables_that_are_not_there(results):
    estimates, settings = results["regimes"], EstimatorSettings()
    assert compare_with_paper("owt", 5, estimates, None, settings) is None
    with pytest.raises(ValueError, match="paper_table: expected one of owt, lm1b, got 'c4'"):
        compare_with_paper("c4", 4, estimates, None, settings)
