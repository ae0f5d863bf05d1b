"""Our perplexities beside the paper's."""

from tube_lightning.bounds import ESTIMATORS, EstimatorSettings
from tube_lightning.metrics import ELBO_K, EXACT
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import Regime
from tube_lightning.report.paper_tables import (
    PAPER_TABLES,
    PrintedCell,
    PrintedRow,
    check_paper_table,
)
from tube_lightning.report.schema import Estimate, PaperCell, PaperComparison


def compare_with_paper(
    table: str,
    block_size: int,
    regimes: dict[str, dict[str, Estimate]],
    arm: Estimate | None,
    settings: EstimatorSettings,
    protocol: Protocol,
) -> PaperComparison | None:
    """Put the rows of one block size beside ours; None if the table has no such block size.

    Only what is the same estimator with the same settings is compared, and what orderings have a
    part in only if they are as many and drawn as the paper's: from one bank. Where the paper marks
    ELBO_K as exact, our exact value stands beside it, if there is one.
    """
    check_paper_table(table)
    theirs = PAPER_TABLES[table]
    if block_size not in theirs.rows:
        return None
    paper = Protocol(bank=True, num_reseeds=1).orderings_of(block_size)
    one_bank = protocol.bank and protocol.num_banks == 1
    drawn_alike = one_bank and protocol.orderings_of(block_size) == paper
    return {
        "table": table,
        "block_size": block_size,
        "drawn_alike": drawn_alike,
        "arm": None if arm is None else _put_beside(arm, PrintedCell(theirs.arm)),
        "regimes": {
            name: _compare_row(regimes[name], row, settings, Regime.parse(name), drawn_alike)
            for name, row in theirs.rows[block_size].items()
            if name in regimes
        },
    }


def _compare_row(
    ours: dict[str, Estimate],
    row: PrintedRow,
    settings: EstimatorSettings,
    regime: Regime,
    drawn_alike: bool,
) -> dict[str, PaperCell]:
    standard = EstimatorSettings()
    compared = {}
    for name, cell in row.cells.items():
        if settings.of(ESTIMATORS[name]) != standard.of(ESTIMATORS[name]):
            continue
        beside = EXACT if name == ELBO_K and row.exact and EXACT in ours else name
        is_alike = drawn_alike or beside == EXACT or not regime.is_random
        if beside in ours and is_alike:
            compared[beside] = _put_beside(ours[beside], cell)
    return compared


def _put_beside(ours: Estimate, paper: PrintedCell) -> PaperCell:
    ppl = ours["ppl"]
    return {
        "ours": ppl,
        "paper": paper.ppl,
        "paper_std": paper.std,
        "difference": None if ppl is None else ppl - paper.ppl,
    }
