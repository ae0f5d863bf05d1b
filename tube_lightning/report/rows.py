"""The rows of the table, as the paper's Table (owt_ppl_main) has them, before any layout."""

from dataclasses import dataclass
from typing import Literal

from tube_lightning.report.schema import Estimate, PaperCell, Results
from tube_lightning.report.wording import counted, is_random, ppl_text, regime_title

Relation = Literal["", ">=", "<=", "="]
BIASED = ("cubo", "tvo", "isvgb")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Cell:
    """One perplexity: how it relates to the true one, and its spread over re-seeds."""

    ppl: float | None
    relation: Relation = ""
    std: float | None = None
    violated: bool = False

    def number(self, plus_minus: str) -> str:
        """Write the perplexity, and its spread if there is any."""
        text = ppl_text(self.ppl)
        if self.ppl and self.std is not None and self.std > _ROUNDING * self.ppl:
            text += f" {plus_minus} {ppl_text(self.std, scale=self.ppl)}"
        return text


@dataclass(frozen=True)
class Row:
    """A regime; None where a column has nothing to say."""

    title: str
    cells: list[Cell | None]


def tube_name(results: Results) -> str:
    """Name the TUBE of the table: leave-one-out, or the split if the protocol is the paper's."""
    return "tube_split" if results["protocol"].get("num_reseeds") else "tube"


def columns(results: Results) -> dict[str, str]:
    """List the columns of estimators, by name, with their titles."""
    beta = results["estimators"]["cubo_beta"]
    return {
        "cubo": f"CUBO_{beta:g}",
        "tvo": "TVO",
        "isvgb": "IS-VG-B",
        tube_name(results): "TUBE",
        "exact": "exact",
        "elbo_k": "ELBO_K",
        "elbo": "ELBO",
    }


GAP_TITLE = "|TUBE - ARM|"


def table_rows(results: Results) -> list[Row]:
    """List the regimes, with a last cell for the distance to the ARM."""
    rows = []
    for name, estimates in results["regimes"].items():
        fixed = not is_random(name) or _is_closed(estimates)
        cells = [
            _cell(estimates[column], column, fixed) if column in estimates else None
            for column in columns(results)
        ]
        rows.append(Row(regime_title(name), [*cells, _gap(estimates, results)]))
    return rows


def _is_closed(estimates: dict[str, Estimate]) -> bool:
    """Tell whether TUBE and ELBO_K are equal, as for blocks of one token: no bounds, but values."""
    if not {"tube", "elbo_k"} <= estimates.keys():
        return False
    low, high = estimates["tube"]["ppl"], estimates["elbo_k"]["ppl"]
    return low is not None and high is not None and abs(low - high) <= _ROUNDING * high


def _cell(estimate: Estimate, name: str, fixed: bool) -> Cell:
    relation: Relation = ""
    if name == "exact":
        relation = "="
    elif estimate["bound_preserving"] and not fixed:
        relation = ">=" if estimate["side"] == "upper" else "<="
    violated = bool(estimate["violated"])
    return Cell(estimate["ppl"], relation, estimate.get("std"), violated)


def _gap(estimates: dict[str, Estimate], results: Results) -> Cell | None:
    """Take the distance between TUBE and the ARM, in perplexity."""
    tube, arm = estimates.get(tube_name(results)), results["arm"]
    if tube is None or arm is None or tube["ppl"] is None or arm["ppl"] is None:
        return None
    return Cell(abs(tube["ppl"] - arm["ppl"]))


def caption(results: Results) -> str:
    """Say what the table shows."""
    counts, data = results["counts"], results["data"]
    parts = [
        f"Perplexity on {data['source']}: {counted(counts['tokens'], 'token')} in "
        f"{counted(counts['sequences'], 'sequence')}, blocks of {results['model']['block_size']}, "
        f"{counted(counts['orderings'], 'ordering')}."
    ]
    if (reseeds := results["protocol"].get("num_reseeds")) and reseeds > 1:
        seeds = results["protocol"].get("elbo_seeds")
        of_the_elbo = f" ({seeds} seeds for the ELBO)" if seeds else ""
        parts.append(f"+- is the standard deviation over {reseeds} re-seeds{of_the_elbo}.")
    if (arm := results["arm"]) is not None:
        interval = arm["ci95"]
        error = "" if interval is None else f" (95%: {' to '.join(map(ppl_text, interval))})"
        parts.append(f"The ARM has {ppl_text(arm['ppl'])}{error}.")
    return " ".join(parts)


def legend(results: Results) -> list[str]:
    """Explain the signs that the table uses."""
    holding = ">= and <= hold in expectation"
    if results["protocol"].get("num_reseeds"):
        holding = (
            "All blocks share one bank of orderings: >= holds in expectation for the bank's mean, "
            "which is ELBO_K, and <= over draws of the bank; no error here includes its luck"
        )
    lines = [f"{holding}; CUBO, TVO and IS-VG-B (biased) promise nothing."]
    regimes = results["regimes"].values()
    if not any("isvgb" in estimates for estimates in regimes):
        pairs = results["estimators"]["isvgb_pairs"]
        lines.append(f"IS-VG-B needs a multiple of {2 * pairs} orderings.")
    if any(estimate["violated"] for estimates in regimes for estimate in estimates.values()):
        lines.append("! on the wrong side of the exact value, or of ELBO_K where there is none.")
    return lines


PAPER_HEADER = ["regime", "estimator", "ours", "paper", "difference"]


def paper_rows(results: Results) -> list[list[str]]:
    """List ours, the paper's and the difference; nothing if the run names no table."""
    paper = results["paper"]
    if paper is None:
        return []
    titles = {**columns(results), "tube_split": "TUBE (split)"}
    rows = [["", "ARM", *_numbers(paper["arm"])]] if paper["arm"] is not None else []
    for regime, cells in paper["regimes"].items():
        rows += [[regime_title(regime), titles[n], *_numbers(cell)] for n, cell in cells.items()]
    return rows


def _numbers(cell: PaperCell) -> list[str]:
    std = cell["paper_std"]
    spread = "" if std is None else f" +- {std:.2f}"
    difference = "-" if cell["difference"] is None else f"{cell['difference']:+.2f}"
    return [ppl_text(cell["ours"]), f"{cell['paper']:.2f}{spread}", difference]
