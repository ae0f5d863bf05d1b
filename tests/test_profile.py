"""The benchmark that says where the time goes."""

from types import SimpleNamespace

import pytest
from networks import random_model

from benchmarks.performance_page import PAGE, fill
from benchmarks.profile import BETWEEN, KINDS, classify, measure, render
from tube_lightning.doctor.speed import middle_rows


def event(*names):
    """An operator, named last, with those that called it."""
    found = None
    for name in names:
        found = SimpleNamespace(name=name, cpu_parent=found)
    return found


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["aten::linear", "aten::addmm"], "trunk matmuls"),
        (["mkldnn::_linear_pointwise"], "trunk matmuls"),
        (["head", "aten::linear", "aten::addmm"], "head"),
        (["attention", "aten::matmul"], "attention"),
        (["aten::scaled_dot_product_attention", "aten::bmm"], "attention"),
        (["aten::gelu"], "rest"),
    ],
)
def test_operators_are_told_apart_by_their_callers(names, kind):
    assert classify(event(*names)) == kind


@pytest.mark.filterwarnings("ignore")  # the profiler's own
def test_every_kind_has_its_share():
    model = random_model(4)
    found = measure("tiny", model, *middle_rows(model.config, 8))
    assert found.rows == 120
    assert all(found.share(kind) > 0 for kind in KINDS)
    assert sum(found.share(kind) for kind in (*KINDS, BETWEEN)) == pytest.approx(1)
    assert "| tiny | 120 | " in render([found])


def test_the_page_takes_the_table_between_its_marks():
    page = PAGE.read_text()
    filled = fill(page, "profile", "the table\n")
    assert "<!-- table: profile -->\nthe table\n<!-- end of table -->" in filled
    assert fill(filled, "profile", "") == fill(page, "profile", "")
    with pytest.raises(ValueError, match="expected the marks"):
        fill("no marks", "profile", "the table\n")


def test_the_page_has_its_sections_in_order():
    """Whoever writes a section, the order is this one."""
    order = ["Where the time goes", "Beside others", "Designs compared", "Kernels", "The head"]
    order += ["Diffusion decoders"]
    order += ["Who waits for the device", "Memory", "Several devices", "bfloat16"]
    order += ["What is proven and what is not", "Close the gap"]
    there = [line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    assert [name for name in order if name in there] == there
    assert "python -m tube_lightning.doctor --json" in PAGE.read_text()
