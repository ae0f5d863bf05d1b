"""The table and the verdict on the screen."""

from collections.abc import Container

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tube_lightning.bounds import headline_bound
from tube_lightning.metrics import ELBO_K, EXACT
from tube_lightning.report.render.captions import caption, legend
from tube_lightning.report.render.rows import (
    GAP_TITLE,
    PAPER_HEADER,
    Cell,
    Column,
    columns,
    paper_notes,
    paper_rows,
    table_rows,
)
from tube_lightning.report.schema import Results

_BRACKET = (EXACT, ELBO_K, *(headline_bound("upper", draws).name for draws in ("fresh", "bank")))
"""What stays on the narrowest screen."""


def show_results(results: Results, console: Console | None = None) -> None:
    """Print the table, the paper's numbers if there are any, and the verdict."""
    console = console or Console()
    table, left_out = _fitting_table(results, console)
    console.print(table)
    whole_lines = not console.is_terminal  # for grep
    if left_out:
        told = f"Left out on this narrow screen, and in table.md: {', '.join(left_out)}."
        console.print(Text(told, style="dim"))
    for line in legend(results):
        console.print(Text(line, style="dim"), soft_wrap=whole_lines)
    for line in results["warnings"]:
        console.print(Text(f"Warning: {line}", style="yellow"), soft_wrap=whole_lines)
    if rows := paper_rows(results):
        console.print(_paper_table(rows))
        for line in paper_notes(results):
            console.print(Text(line, style="dim"), soft_wrap=whole_lines)
    console.print(Text(results["verdict"], style="bold"), soft_wrap=whole_lines)


def fit_width(console: Console, table: Table) -> None:
    """Make what is no screen as wide as the table: a file or a pipe is as wide as need be."""
    if not console.is_terminal:
        boundless = console.options.update(width=1000)
        console.width = max(console.width, console.measure(table, options=boundless).maximum)


def _fitting_table(results: Results, console: Console) -> tuple[Table, list[str]]:
    """Lay out as many columns as a screen has room for, and name those that are left out.

    Estimators that promise nothing go first, then all but the bracket; numbers are never folded.
    """
    order = [c for c in columns(results) if c.is_biased]
    order += [Column(GAP_TITLE, GAP_TITLE)]
    order += [c for c in columns(results) if not c.is_biased and c.name not in _BRACKET]
    left_out: list[Column] = []
    table = main_table(results)
    fit_width(console, table)
    while order and _width(console, table) > console.width:
        left_out.append(order.pop(0))
        table = main_table(results, without=[column.name for column in left_out])
    return table, [column.title for column in left_out]


def _width(console: Console, table: Table) -> int:
    boundless = console.options.update(width=1000)
    table.caption, caption = None, table.caption
    width = console.measure(table, options=boundless).maximum
    table.caption = caption
    return width


def main_table(results: Results, without: Container[str] = ()) -> Table:
    """Lay out the regimes. Biased estimators are yellow, violated bounds red."""
    table = Table(
        caption=caption(results),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    table.add_column("regime", no_wrap=True)
    shown = [*columns(results), Column(GAP_TITLE, "|TUBE -\nARM|")]
    for column in shown:
        title = f"{column.title}\nbiased" if column.is_biased else column.title
        style = "yellow" if column.is_biased else ""
        if column.name not in without:
            table.add_column(Text(title), justify="right", style=style, no_wrap=True)
    for row in table_rows(results):
        pairs = zip(shown, row.cells, strict=True)
        cells = [_cell_text(cell) for column, cell in pairs if column.name not in without]
        table.add_row(row.title, *cells)
    return table


def _cell_text(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-", style="dim")
    text = f"{cell.relation} {cell.number('+-')}".strip()
    return Text(f"{text}{cell.mark}", style="bold red" if cell.mark == "!" else "")


def _paper_table(rows: list[list[str]]) -> Table:
    table = Table(title="Beside the paper", title_justify="left")
    for number, title in enumerate(PAPER_HEADER):
        table.add_column(title, justify="right" if number > 1 else "left")
    for row in rows:
        table.add_row(*row)
    return table
