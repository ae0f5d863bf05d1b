"""Pages that take their numbers from runs."""

import json

import pytest

from benchmarks.results_page import fill

PAGE = """# Title

Prose stays.

<!-- run: demo_l4 bracket -->
whatever stood here
<!-- end of run -->

More prose.
"""


@pytest.fixture
def runs(tmp_path):
    directory = tmp_path / "runs" / "demo_l4"
    (directory / "figures").mkdir(parents=True)
    (directory / "figures" / "bracket.png").write_bytes(b"picture")
    (directory / "table.md").write_text("the table\n")
    results = {
        "counts": {"blocks": 1234},
        "seconds": {"scoring": 5.4, "report": 1.6},
        "data": {"token_sha256": "0123456789abcdef"},
    }
    (directory / "results.json").write_text(json.dumps(results))
    return tmp_path / "runs"


def test_numbers_are_replaced_and_prose_is_not(runs, tmp_path):
    page = fill(PAGE, runs, tmp_path)
    assert "whatever stood here" not in page
    assert page.startswith("# Title\n\nProse stays.\n\n<!-- run: demo_l4 bracket -->\n")
    assert page.endswith("<!-- end of run -->\n\nMore prose.\n")
    for part in (
        "```bash\npython evaluate.py experiment=demo_l4\n```",
        "\n\nthe table\n\n",
        "Cost: 5 s of scoring and 2 s of report for 1,234 blocks; tokens `0123456789ab`.",
        "![bracket of demo_l4](figures/demo_l4_bracket.png)",
    ):
        assert part in page
    assert (tmp_path / "demo_l4_bracket.png").read_bytes() == b"picture"
    assert fill(page, runs, tmp_path) == page


def test_a_run_that_is_not_there_is_named(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match="demo_l8: expected the run of experiment=demo_l8"):
        fill(PAGE.replace("demo_l4", "demo_l8"), runs, tmp_path)
