"""The benchmarks behind the tables of docs/PERFORMANCE.md, as small as they get."""

import re

import numpy as np
import pytest
import torch

from benchmarks import memory, precision, waits
from benchmarks.performance_page import PAGE
from benchmarks.sleeping_ranks import Timed
from tube_lightning.memory import USABLE


def test_every_table_of_the_page_is_filled():
    tables = re.findall(
        r"<!-- table: (\w+) -->\n(.*?)<!-- end of table -->", PAGE.read_text(), re.S
    )
    assert {"profile", "memory", "waits", "precision"} <= {name for name, _ in tables}
    for name, table in tables:
        assert "|---" in table, name


# ---- waits


def test_lock_step_adds_the_slowest_of_each_turn():
    seconds = np.array([[1.0, 5.0, 1.0], [4.0, 1.0, 1.0]])
    lock_step, noticeboard = waits.durations(seconds)
    assert (lock_step, noticeboard) == (4 + 5 + 1, 7)


@pytest.mark.parametrize("num_ranks", [2, 8])
@pytest.mark.parametrize("scenario", waits.SCENARIOS)
def test_who_waits_less_loses_less(scenario, num_ranks, monkeypatch):
    monkeypatch.setattr(waits, "NUM_DRAWS", 20)
    lost = waits.simulate(scenario, num_ranks)
    assert 0 <= lost.noticeboard <= lost.lock_step < 1
    assert 0 <= lost.one_queue < lost.noticeboard + 0.01


def test_one_queue_gives_a_slow_rank_less():
    assert waits._lost_with_one_queue(np.ones(9), np.array([1.0, 2.0])) == 0.0  # six and three
    assert waits._lost_with_one_queue(np.ones(3), np.ones(2)) == 0.25


def test_the_tables_of_waits():
    naps = np.ones((2, 3))
    lost = waits.Lost("some", 2, 0.25, 0.125, 0.0)
    timed = dict.fromkeys([waits.STOP_ONLY, waits.NOTICEBOARD], Timed(650, 0.5, 3.5))
    text = waits.render([lost], naps, timed)
    assert "| some | 2 | 25.0% | 12.5% | 0.0% |" in text
    assert f"| {waits.STOP_ONLY} | 650 | 0.5000 | 3.00 s | 3.50 s |" in text


# ---- memory


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("experiment", ["owt_l4", "owt_l8", "owt_l16"])
def test_plans_fit_their_devices(experiment, dtype):
    for gigabytes in memory.DEVICES:
        budget, peak = memory.plan(experiment, dtype, gigabytes)
        assert peak.total <= USABLE * gigabytes * 1e9
        assert budget >= 4096


# ---- precision


def test_shifts_of_the_precision():
    fp32, bf16 = torch.tensor([-4.0, -2.0]).double(), torch.tensor([-4.5, -1.9]).double()
    shift = precision.Shift("tiny", "exact", fp32, bf16, num_tokens=4)
    assert shift.nats_per_token(shift.differences) == pytest.approx(-0.1)
    assert shift.standard_error() == pytest.approx(0.6 / 2**0.5 * 2**0.5 / 4)
    row = "| tiny | exact | 2 | 0.3606 | 0.500 | -0.10000 +- 0.15000 | 4.4817 | 4.953 |"
    assert row in precision.render([shift])


@pytest.mark.filterwarnings("ignore")
def test_bfloat16_moves_the_embedded_model_a_little(monkeypatch):
    monkeypatch.setitem(precision.SEQUENCES, 4, 1)
    shifts = {shift.quantity: shift for shift in precision.demo_shifts(4)}
    assert list(shifts) == ["exact", "ELBO_K", "TUBE", "ARM"]
    for shift in shifts.values():
        assert 0 < shift.differences.abs().max() < 0.5
        assert abs(shift.nats_per_token(shift.differences)) < 0.02
