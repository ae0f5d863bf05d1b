"""Our perplexities beside the paper's."""

from tube_lightning.metrics import EstimatorSettings
from tube_lightning.report.paper_tables import PAPER_TABLES, Cell, Row, check_paper_table
from tube_lightning.report.schema import Estimate, PaperCell, PaperComparison


def compare_with_paper(
    table: str,
    block_size: int,
    regimes: dict[str, dict[str, Estimate]],
    arm: Estimate | None,
    settings: EstimatorSettings,
) -> PaperComparison | None:
    """Put the rows of one block size beside ours; None if the table has no such block size.

    Only what is the same estimator with the same settings is compared. Where the paper marks
    ELBO_K as exact, our exact value stands beside it, if there is one.
    """
    check_paper_table(table)
    theirs = PAPER_TABLES[table]
    if block_size not in theirs.rows:
        return None
    return {
        "table": table,
        "block_size": block_size,
        "arm": None if arm is None else _cell(arm, Cell(theirs.arm)),
        "regimes": {
            name: _compared(regimes[name], row, settings)
            for name, row in theirs.rows[block_size].items()
            if name in regimes
        },
    }


def _compared(
    ours: dict[str, Estimate], row: Row, settings: EstimatorSettings
) -> dict[str, PaperCell]:
    standard = EstimatorSettings()
    theirs = {"tube_split": row.tube_split, "elbo": row.elbo}
    if settings.cubo_beta == standard.cubo_beta:
        theirs["cubo"] = row.cubo
    if settings.tvo_partitions == standard.tvo_partitions:
        theirs["tvo"] = row.tvo
    if settings.isvgb_pairs == standard.isvgb_pairs:
        theirs["isvgb"] = row.isvgb
    theirs["exact" if row.exact and "exact" in ours else "elbo_k"] = row.elbo_k
    return {
        name: _cell(ours[name], cell)
        for name, cell in theirs.items()
        if cell is not None and name in ours
    }


def _cell(ours: Estimate, paper: Cell) -> PaperCell:
    ppl = ours["ppl"]
    return {
        "ours": ppl,
        "paper": paper.ppl,
        "paper_std": paper.std,
        "difference": None if ppl is None else ppl - paper.ppl,
    }
