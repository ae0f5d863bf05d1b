"""The table as LaTeX, for a document that loads booktabs and graphicx.

It is never wider than the lines of the page, and names no folder of a machine.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from tube_lightning.report.render.captions import caption, legend
from tube_lightning.report.render.rows import Cell, columns, table_rows
from tube_lightning.report.schema import Results

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


def latex(results: Results, command: str, label: str = "tube") -> str:
    """Write the table for a document that loads booktabs and graphicx."""
    titles = [tex_text(column.title) for column in columns(results)]
    num_biased = sum(column.is_biased for column in columns(results))
    head = " & ".join([r"\textbf{Regime}", *titles, r"$|$TUBE $-$ ARM$|$"])
    body = [
        rf" & \multicolumn{{{num_biased}}}{{c}}{{biased}} & "
        + " & ".join([""] * (len(titles) - num_biased + 1))
        + r" \\",
        rf"\cmidrule(lr){{2-{1 + num_biased}}}",
        head + r" \\",
        r"\midrule",
        *(
            " & ".join([row.title, *(_tex_cell(cell) for cell in row.cells)]) + r" \\"
            for row in table_rows(results)
        ),
    ]
    told = [results["verdict"], *(f"Warning: {warning}" for warning in results["warnings"])]
    text = " ".join([caption(results, short_name(results["data"]["source"])), *legend(results)])
    alignment = "l" + "r" * (len(titles) + 1)
    table = latex_table(command, text, alignment, body, label)
    return table + "".join(f"% {one_line(t)}\n" for t in told)


def latex_table(command: str, told: str, alignment: str, body: Sequence[str], label: str) -> str:
    """Put rows, with the rules between them, into a table that names the command it is from.

    A table that is too wide for its page is made smaller; one that is not, stays as it is.
    """
    lines = [
        f"% {one_line(command)}",
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        r"\small",
        r"\setlength{\tabcolsep}{4pt}",
        f"\\caption{{{tex_text(told)}}}",
        rf"\label{{tab:{_label(label)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def short_name(path: str) -> str:
    """Leave out the folders of a file's name, which are nobody else's: "a/b.txt and 2 more" too.

    >>> short_name("/home/me/corpus/a.jsonl and 2 more"), short_name("demo/heldout")
    ('a.jsonl and 2 more', 'demo/heldout')
    """
    first, *rest = path.split(" and ", 1)
    return " and ".join([Path(first).name if Path(first).is_absolute() else first, *rest])


def _label(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).replace("_", "-").strip("-").lower()


def one_line(text: str) -> str:
    """Join lines, as a comment needs it."""
    return " ".join(text.split())


def tex_text(text: str) -> str:
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
    if cell.mark == "!":
        return f"$\\mathbf{{{text}}}^{{!}}$"
    return f"${text}^{{\\sim}}$" if cell.mark else f"${text}$"
