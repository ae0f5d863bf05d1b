"""The table as Markdown and as LaTeX."""

from tube_lightning.report.rows import (
    BIASED,
    GAP_TITLE,
    PAPER_HEADER,
    Cell,
    caption,
    columns,
    legend,
    paper_rows,
    table_rows,
)
from tube_lightning.report.schema import Results

_MARKDOWN_SIGNS = {">=": "≥ ", "<=": "≤ ", "=": "= ", "": ""}
_TEX_SIGNS = {">=": r"\geq ", "<=": r"\leq ", "=": "= ", "": ""}
_TEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}


def markdown(results: Results) -> str:
    """Write the table for GitHub."""
    titles = [f"{t} (biased)" if n in BIASED else t for n, t in columns(results).items()]
    rows = [
        [row.title, *(_markdown_cell(cell) for cell in row.cells)] for row in table_rows(results)
    ]
    parts = [
        _markdown_text(caption(results)),
        _markdown_table(["regime", *titles, GAP_TITLE], rows),
        "  \n".join(map(_markdown_text, legend(results))),
    ]
    if compared := paper_rows(results):
        parts += ["Beside the paper:", _markdown_table(PAPER_HEADER, compared)]
    return "\n\n".join([*parts, f"**{_markdown_text(results['verdict'])}**"]) + "\n"


def _markdown_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_text, line))} |" for line in lines)


def _markdown_text(text: str) -> str:
    for sign in "|_":
        text = text.replace(sign, f"\\{sign}")
    return text.replace(">=", "≥").replace("<=", "≤").replace("+-", "±")


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    text = _MARKDOWN_SIGNS[cell.relation] + cell.number("±")
    return f"**{text} !**" if cell.violated else text


def latex(results: Results, command: str) -> str:
    """Write the table for a document that loads booktabs."""
    titles = [_tex_text(title) for title in columns(results).values()]
    head = " & ".join([r"\textbf{Regime}", *titles, r"$|$TUBE $-$ ARM$|$"])
    lines = [
        f"% {_one_line(command)}",
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\small",
        f"\\caption{{{_tex_text(caption(results) + ' ' + ' '.join(legend(results)))}}}",
        r"\begin{tabular}{l" + "r" * (len(titles) + 1) + "}",
        r"\toprule",
        rf" & \multicolumn{{{len(BIASED)}}}{{c}}{{biased}} & "
        + " & ".join([""] * (len(titles) - len(BIASED) + 1))
        + r" \\",
        rf"\cmidrule(lr){{2-{1 + len(BIASED)}}}",
        head + r" \\",
        r"\midrule",
        *(
            " & ".join([row.title, *(_tex_cell(cell) for cell in row.cells)]) + r" \\"
            for row in table_rows(results)
        ),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        f"% {_one_line(results['verdict'])}",
    ]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _tex_text(text: str) -> str:
    """Escape what LaTeX would read as a command; write relations as signs."""
    marks = {">=": r"$\geq$", "<=": r"$\leq$", "+-": r"$\pm$"}
    for number, mark in enumerate(marks):
        text = text.replace(mark, chr(number))
    text = "".join(_TEX_ESCAPES.get(sign, sign) for sign in text)
    for number, sign in enumerate(marks.values()):
        text = text.replace(chr(number), sign)
    return text


def _tex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = _TEX_SIGNS[cell.relation] + cell.number(r"\pm").replace("inf", r"\infty")
    return f"$\\mathbf{{{text}}}^{{!}}$" if cell.violated else f"${text}$"
