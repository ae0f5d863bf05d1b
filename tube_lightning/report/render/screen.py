"""The table and the verdict on the screen."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tube_lightning.report.render.captions import caption, legend
from tube_lightning.report.render.rows import (
    PAPER_HEADER,
    Cell,
    columns,
    paper_notes,
    paper_rows,
    table_rows,
)
from tube_lightning.report.schema import Results


def show_results(results: Results, console: Console | None = None) -> None:
    """Print the table, the paper's numbers if there are any, and the verdict."""
    console = console or Console()
    table = main_table(results)
    fit_width(console, table)
    console.print(table)
    whole_lines = not console.is_terminal  # for grep
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


def main_table(results: Results) -> Table:
    """Lay out the regimes. Biased estimators are yellow, violated bounds red."""
    table = Table(
        caption=caption(results),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    table.add_column("regime", no_wrap=True)
    for column in columns(results):
        title = f"{column.title}\nbiased" if column.is_biased else column.title
        style = "yellow" if column.is_biased else ""
        table.add_column(Text(title), justify="right", style=style, overflow="fold")
    table.add_column("|TUBE -\nARM|", justify="right", overflow="fold")
    for row in table_rows(results):
        table.add_row(row.title, *map(_cell_text, row.cells))
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
