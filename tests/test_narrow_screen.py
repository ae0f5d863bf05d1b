"""The table where there is little room: columns are left out, numbers are never folded."""

import io
import re

import pytest
from rich.console import Console

from tests.test_notebook import FIXTURES, IDS
from tube_lightning import evaluate
from tube_lightning.report.render import show_results
from tube_lightning.report.wording import ppl_text


@pytest.fixture(scope="module")
def results():
    return evaluate(FIXTURES / "bd3lm_block4", IDS, arm=FIXTURES / "ar", show=False)


def shown(results, width):
    page = io.StringIO()
    show_results(results, Console(file=page, width=width, force_terminal=True, no_color=True))
    return re.sub(r"\x1b\[[0-9;]*m", "", page.getvalue())


@pytest.mark.parametrize("width", [45, 60, 80, 140])
def test_rows_are_whole_and_end_with_the_bracket(results, width):
    text = shown(results, width)
    assert max(map(len, text.splitlines())) <= width
    exact = results["regimes"]["ao_arm"]["exact"]["ppl"]
    (row,) = [line for line in text.splitlines() if line.startswith("AO-ARM ")]
    assert f"= {ppl_text(exact)}" in row
    assert f"<= {ppl_text(results['regimes']['ao_arm']['elbo_k']['ppl'])}" in row


def test_estimators_that_promise_nothing_go_first(results):
    assert "Left out" not in shown(results, 140)
    narrow = shown(results, 60)
    assert re.search(r"Left out on this narrow screen, and in table\.md:\s+CUBO", narrow)
    head = narrow.partition("Left out")[0]
    assert "CUBO" not in head
    assert "TUBE" in head


def test_a_file_has_all_columns(results):
    page = io.StringIO()
    show_results(results, Console(file=page, width=60))
    assert "Left out" not in page.getvalue()
    assert "CUBO" in page.getvalue()
