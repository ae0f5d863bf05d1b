"""The perplexities of the TUBE paper, Tables (owt_ppl_main) and (lm1b_ppl_main), as data."""

from typing import NamedTuple


class PrintedCell(NamedTuple):
    """A perplexity, and its standard deviation over re-seeds (None where none is printed)."""

    ppl: float
    std: float | None = None


class PrintedRow(NamedTuple):
    """A regime of one block size, by our names of the estimators. TUBE is the half-split."""

    cells: dict[str, PrintedCell]
    gap_to_arm: float
    exact: bool = False
    """ELBO_K is marked as exact: its bank holds all orderings"""


class PaperTable(NamedTuple):
    """The ARM's perplexity, and rows by block size and regime."""

    arm: float
    rows: dict[int, dict[str, PrintedRow]]


def _same(ppl: float, gap: float) -> PrintedRow:
    """Make the row of NFE = 1: nothing is random, so all columns are equal."""
    names = ("cubo", "tvo", "isvgb", "tube_split", "elbo_k")
    return PrintedRow({name: PrintedCell(ppl) for name in names}, gap)


def _row(
    cubo: tuple[float, float],
    tvo: tuple[float, float],
    isvgb: tuple[float, float],
    tube: tuple[float, float],
    elbo_k: float,
    gap: float,
    elbo: tuple[float, float] | None = None,
    exact: bool = False,
) -> PrintedRow:
    sampled = {"cubo": cubo, "tvo": tvo, "isvgb": isvgb, "tube_split": tube}
    cells = {name: PrintedCell(*cell) for name, cell in sampled.items()}
    cells["elbo_k"] = PrintedCell(elbo_k)
    if elbo is not None:
        cells["elbo"] = PrintedCell(*elbo)
    return PrintedRow(cells, gap, exact)


# fmt: off
OWT = PaperTable(17.54, {
    4: {
        "nfe_1": _same(97.78, 80.24),
        "nfe_2": _row((24.34, .01), (27.68, .01), (29.11, .03), (21.55, .03), 27.40, 4.01),
        "nfe_4": _row((19.78, .01), (21.89, .01), (22.52, .01), (19.16, .02), 21.63, 1.62),
        "ao_arm": _row((17.50, .00), (18.55, .00), (18.76, .01), (17.74, .01), 18.46, 0.20,
                       elbo=(21.36, .21), exact=True),
    },
    8: {
        "nfe_1": _same(221.54, 204.00),
        "nfe_2": _row((29.04, .01), (33.41, .02), (34.95, .03), (24.32, .06), 32.63, 6.78),
        "nfe_4": _row((20.90, .01), (23.54, .01), (24.15, .01), (20.23, .03), 23.25, 2.69),
        "nfe_8": _row((18.85, .01), (20.83, .01), (21.17, .01), (19.15, .02), 20.67, 1.61),
        "ao_arm": _row((17.95, .00), (19.31, .00), (19.46, .00), (18.67, .01), 19.24, 1.13,
                       elbo=(22.18, .58)),
    },
    16: {
        "nfe_1": _same(398.63, 381.09),
        "nfe_2": _row((35.80, .01), (39.80, .01), (41.93, .06), (22.50, .15), 38.43, 4.96),
        "nfe_4": _row((22.89, .02), (25.21, .01), (25.96, .02), (19.03, .08), 24.75, 1.49),
        "nfe_8": _row((19.59, .01), (21.38, .01), (21.77, .01), (18.44, .04), 21.14, 0.90),
        "nfe_16": _row((18.44, .01), (19.98, .00), (20.26, .01), (18.22, .03), 19.83, 0.68),
        "ao_arm": _row((18.08, .00), (19.39, .00), (19.56, .01), (18.47, .01), 19.30, 0.93,
                       elbo=(22.81, .61)),
    },
})

LM1B = PaperTable(22.46, {
    4: {
        "nfe_1": _same(137.09, 114.62),
        "nfe_2": _row((34.67, .01), (39.45, .01), (41.40, .04), (30.87, .03), 39.08, 8.41),
        "nfe_4": _row((28.05, .01), (31.01, .01), (31.85, .02), (27.34, .03), 30.67, 4.88),
        "ao_arm": _row((25.25, .00), (26.54, .00), (26.78, .00), (25.63, .01), 26.45, 3.17,
                       elbo=(28.95, .38), exact=True),
    },
    8: {
        "nfe_1": _same(299.88, 277.42),
        "nfe_2": _row((41.45, .02), (47.68, .02), (49.73, .03), (35.24, .05), 46.66, 12.77),
        "nfe_4": _row((29.78, .01), (33.53, .01), (34.34, .02), (29.11, .04), 33.14, 6.65),
        "nfe_8": _row((26.88, .01), (29.65, .01), (30.09, .01), (27.51, .02), 29.44, 5.05),
        "ao_arm": _row((25.14, .00), (26.90, .00), (27.09, .01), (26.15, .01), 26.82, 3.69,
                       elbo=(30.32, .38)),
    },
    16: {
        "nfe_1": _same(546.32, 523.86),
        "nfe_2": _row((51.26, .03), (57.02, .03), (59.97, .03), (31.99, .13), 55.13, 9.53),
        "nfe_4": _row((32.81, .02), (36.15, .02), (37.18, .02), (27.39, .06), 35.52, 4.93),
        "nfe_8": _row((28.00, .01), (30.54, .01), (31.07, .01), (26.60, .04), 30.23, 4.14),
        "nfe_16": _row((26.34, .01), (28.50, .01), (28.86, .01), (26.24, .02), 28.30, 3.78),
        "ao_arm": _row((25.14, .00), (26.88, .00), (27.09, .01), (25.82, .02), 26.78, 3.36,
                       elbo=(31.03, .49)),
    },
})
# fmt: on

PAPER_TABLES = {"owt": OWT, "lm1b": LM1B}


def check_paper_table(name: str) -> None:
    """Refuse a table that is not in the paper."""
    if name not in PAPER_TABLES:
        raise ValueError(f"paper_table: expected one of {', '.join(PAPER_TABLES)}, got {name!r}")
