"""The LaTeX tables in a plain article: they compile, fit, and name no folder of this machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from evaluation_runs import FIXTURES, run_here

from tube_lightning.compare import write_comparison

DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs,graphicx}
\begin{document}
\input{%s}
Table~\ref{tab:%s}.
\end{document}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with every column: biased estimators, the exact value, the ARM, its distance."""
    folder = tmp_path_factory.mktemp("latex")
    model, arm = FIXTURES / "bd3lm_block4", FIXTURES / "ar"
    (folder / "tokens.jsonl").write_text('{"tokens": [3, 3, 22, 37, 33, 26, 19, 3]}\n' * 4)
    options = [f"model.checkpoint={model}", f"arm.checkpoint={arm}", "trainer.accelerator=cpu"]
    text = [
        "data=tokens",
        f"data.path={folder / 'tokens.jsonl'}",
        f"output_dir={folder / 'my run'}",
    ]
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch, folder, *options, *text, "length=8")
    return folder / "my run"


def test_no_folders_and_a_label(run):
    text = (run / "table.tex").read_text()
    assert str(run.parent) not in text
    assert not re.search(r"(^|[\s{])/\w", text)
    assert r"\label{tab:my-run}" in text
    assert "% python -m tube_lightning.report my run\n" in text


@pytest.mark.slow
def test_tables_compile_and_fit_an_article(run, tmp_path):
    if shutil.which("pdflatex") is None and "TUBE_LIGHTNING_CI" not in os.environ:
        pytest.skip("pdflatex is not installed")
    shutil.copy(run / "table.tex", tmp_path)
    assert compile_article(tmp_path, "table", "my-run") == []
    names = [str(run), f"{run}:nfe_2"]
    write_comparison(names, tmp_path, on_screen=False)
    text = (tmp_path / "comparison.tex").read_text()
    assert str(run.parent) not in text
    (label,) = re.findall(r"\\label\{tab:(.*?)\}", text)
    assert compile_article(tmp_path, "comparison", label) == []


def compile_article(folder: Path, name: str, label: str) -> list[str]:
    """Compile twice, for the reference; return what TeX complains about."""
    (folder / "article.tex").write_text(DOCUMENT % (name, label))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "article.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    log = (folder / "article.log").read_text(errors="replace")
    return re.findall(r"Overfull.*|.*undefined.*|LaTeX Warning.*", log)
