"""The rows of the table, as the paper's Table (owt_ppl_main) has them, before any layout."""

from dataclasses import dataclass
from typing import Literal

from tube_lightning.bounds import ESTIMATORS, Estimator, EstimatorSettings, headline_bound
from tube_lightning.metrics import EXACT
from tube_lightning.protocol import Draws, Protocol
from tube_lightning.regimes import Regime
from tube_lightning.report.estimates import ROUNDING
from tube_lightning.report.schema import Estimate, PaperCell, Results
from tube_lightning.report.wording import ppl_text

Relation = Literal["", ">=", "<=", "="]
Mark = Literal["", "~", "!"]
"""On the wrong side of the reference: within the error, or beyond it."""


@dataclass(frozen=True)
class Cell:
    """One perplexity: how it relates to the true one, and its spread over re-seeds."""

    ppl: float | None
    relation: Relation = ""
    std: float | None = None
    mark: Mark = ""

    def number(self, plus_minus: str) -> str:
        """Write the perplexity, and its spread if there is any."""
        text = ppl_text(self.ppl)
        if self.ppl and self.std is not None and self.std > ROUNDING * self.ppl:
            text += f" {plus_minus} {ppl_text(self.std, scale=self.ppl)}"
        return text


@dataclass(frozen=True)
class Row:
    """A regime; None where a column has nothing to say."""

    title: str
    cells: list[Cell | None]


@dataclass(frozen=True)
class Column:
    """A column of perplexities: an estimator, or the exact value."""

    name: str
    title: str
    is_biased: bool = False


def draws_of(results: Results) -> Draws:
    """Tell whether the results are of fresh orderings or of resamples of a bank."""
    return Protocol(**results["protocol"]).draws


def shown_estimators(results: Results) -> list[Estimator]:
    """List the estimators that have a column, those that promise nothing first."""
    draws = draws_of(results)
    shown = [e for e in ESTIMATORS.values() if draws in e.columns_for]
    order = {"upper": 1, "lower": 2}
    return sorted(shown, key=lambda e: order[e.side] if e.bound_preserving else 0)


def columns(results: Results) -> list[Column]:
    """List the columns: biased estimators, upper bounds, the exact value, lower bounds."""
    settings = EstimatorSettings(**results["estimators"])
    listed = [
        Column(
            estimator.name,
            estimator.column_title(settings),
            is_biased=not estimator.bound_preserving,
        )
        for estimator in shown_estimators(results)
    ]
    lower = [ESTIMATORS[c.name].side == "lower" and not c.is_biased for c in listed]
    middle = lower.index(True) if any(lower) else len(listed)
    return [*listed[:middle], Column(EXACT, "exact"), *listed[middle:]]


GAP_TITLE = "|TUBE - ARM|"


def table_rows(results: Results) -> list[Row]:
    """List the regimes, with a last cell for the distance to the ARM."""
    rows = []
    for name, estimates in results["regimes"].items():
        there = regime_cells(name, results)
        cells = [there.get(column.name) for column in columns(results)]
        rows.append(Row(Regime.parse(name).title, [*cells, _gap(estimates, results)]))
    return rows


def regime_cells(name: str, results: Results) -> dict[str, Cell]:
    """Write what a regime has for the columns, by their names."""
    estimates = results["regimes"][name]
    fixed = not Regime.parse(name).is_random or _is_closed(estimates, draws_of(results))
    return {
        column.name: _make_cell(estimates[column.name], column.name, fixed)
        for column in columns(results)
        if column.name in estimates
    }


def _is_closed(estimates: dict[str, Estimate], draws: Draws) -> bool:
    """Tell whether TUBE and ELBO_K are equal, as for blocks of one token: no bounds, but values."""
    ends = [headline_bound(side, draws).name for side in ("upper", "lower")]
    if not estimates.keys() >= set(ends):
        return False
    low, high = (estimates[end]["ppl"] for end in ends)
    return low is not None and high is not None and abs(low - high) <= ROUNDING * high


def _make_cell(estimate: Estimate, name: str, fixed: bool) -> Cell:
    relation: Relation = ""
    if name == EXACT:
        relation = "="
    elif estimate["bound_preserving"] and not fixed:
        relation = ">=" if estimate["side"] == "upper" else "<="
    return Cell(estimate["ppl"], relation, estimate.get("std"), mark_of(estimate))


def mark_of(estimate: Estimate) -> Mark:
    """Mark what is on the wrong side, by one rule for all columns."""
    if estimate["violated"]:
        return "!"
    return "~" if estimate["wrong_side"] else ""


def _gap(estimates: dict[str, Estimate], results: Results) -> Cell | None:
    """Take the distance between TUBE and the ARM, in perplexity."""
    tube, arm = estimates.get(headline_bound("upper", draws_of(results)).name), results["arm"]
    if tube is None or arm is None or tube["ppl"] is None or arm["ppl"] is None:
        return None
    return Cell(abs(tube["ppl"] - arm["ppl"]))


PAPER_HEADER = ["regime", "estimator", "ours", "paper", "difference"]


def paper_rows(results: Results) -> list[list[str]]:
    """List ours, the paper's and the difference; nothing if the run names no table."""
    paper = results["paper"]
    if paper is None:
        return []
    titles = {column.name: column.title for column in columns(results)}
    titles["tube_split"] = "TUBE (split)"  # the paper's, whatever ours in the table is
    rows = [["", "ARM", *_numbers(paper["arm"])]] if paper["arm"] is not None else []
    for regime, cells in paper["regimes"].items():
        title = Regime.parse(regime).title
        rows += [[title, titles[name], *_numbers(cell)] for name, cell in cells.items()]
    return rows


def paper_notes(results: Results) -> list[str]:
    """Say what is not to be read into the comparison."""
    paper, notes = results["paper"], []
    if paper is None:
        return []
    if any("isvgb" in cells for cells in paper["regimes"].values()):
        notes.append(
            "The paper's IS-VG-B does not follow from its formula: no scores give that ratio to "
            "its TVO; expect another value."
        )
    if not paper["drawn_alike"]:
        notes.append(
            "Sampled columns are compared only under the paper's protocol with its number of "
            "orderings (protocol=paper)."
        )
    return notes


def _numbers(cell: PaperCell) -> list[str]:
    std = cell["paper_std"]
    spread = "" if std is None else f" +- {std:.2f}"
    difference = "-" if cell["difference"] is None else f"{cell['difference']:+.2f}"
    return [ppl_text(cell["ours"]), f"{cell['paper']:.2f}{spread}", difference]
