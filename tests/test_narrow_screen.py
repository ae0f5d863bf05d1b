"""The table where there is little room: columns are left out, numbers are never folded."""

import io
import re

import pytest
from rich.console import Console

from tests.test_notebook import FIXTURES, IDS
from tube_lightning import evaluate
from tube_lightning.evaluator.live import live_bracket
from tube_lightning.metrics import Measured
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


@pytest.mark.parametrize("room", [16, 30, 45, 80])
def test_the_bar_leaves_out_what_it_has_no_room_for(room):
    nats = {"tube": -5.61, "elbo_k": -5.62, "exact": -5.612381, "arm": -10.8052}
    values = {name: Measured(value, None, 9) for name, value in nats.items()}
    text = live_bracket({"ao_arm": values}, room)
    assert len(text) <= room
    assert text.replace("exactly", "PPL =").find("PPL = 273.80") >= 0
    assert ("(ARM 49276)" in text) == (room in (30, 80))  # the bracket goes first
    assert text.startswith("273.14 <= PPL <= 275.89, exactly") == (room >= 45)


def test_a_file_has_all_columns(results):
    page = io.StringIO()
    show_results(results, Console(file=page, width=60))
    assert "Left out" not in page.getvalue()
    assert "CUBO" in page.getvalue()
