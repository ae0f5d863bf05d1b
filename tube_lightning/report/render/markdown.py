"""The table as Markdown, for GitHub."""

from tube_lightning.report.render.captions import caption, legend
from tube_lightning.report.render.rows import (
    GAP_TITLE,
    PAPER_HEADER,
    Cell,
    columns,
    paper_notes,
    paper_rows,
    table_rows,
)
from tube_lightning.report.schema import Results

_MARKDOWN_SIGNS = {">=": "≥ ", "<=": "≤ ", "=": "= ", "": ""}


def markdown(results: Results) -> str:
    """Write the table for GitHub."""
    names = [(column.title.replace("*", r"\*"), column.is_biased) for column in columns(results)]
    titles = [f"{title} (biased)" if biased else title for title, biased in names]
    rows = [
        [row.title, *(_markdown_cell(cell) for cell in row.cells)] for row in table_rows(results)
    ]
    parts = [
        markdown_text(caption(results)),
        markdown_table(["regime", *titles, GAP_TITLE], rows),
        "  \n".join(map(markdown_text, legend(results))),
    ]
    if compared := paper_rows(results):
        notes = "  \n".join(map(markdown_text, paper_notes(results)))
        parts += ["Beside the paper:", markdown_table(PAPER_HEADER, compared), notes]
    parts += [markdown_text(f"Warning: {warning}") for warning in results["warnings"]]
    return "\n\n".join([*parts, f"**{markdown_text(results['verdict'])}**"]) + "\n"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Lay out a table whose first column is of words, and all others of numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(map(markdown_text, line))} |" for line in lines)


def markdown_text(text: str) -> str:
    """Escape what Markdown would read as layout; write relations as signs."""
    for sign in "|_":
        text = text.replace(sign, f"\\{sign}")
    return text.replace(">=", "≥").replace("<=", "≤").replace("+-", "±")


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    text = _MARKDOWN_SIGNS[cell.relation] + cell.number("±")
    return f"**{text} !**" if cell.mark == "!" else f"{text} {cell.mark}".strip()
