"""The comparison as a table: on the screen, in Markdown and in LaTeX."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tube_lightning.compare.schema import (
    AgainstFirst,
    ComparedDifference,
    ComparedEntry,
    ComparedValue,
    RunComparison,
)
from tube_lightning.regimes import Regime
from tube_lightning.report import (
    counted,
    fit_width,
    latex_table,
    markdown_table,
    markdown_text,
    ppl_text,
    short_name,
    tex_text,
)

_STYLES = {"better": "green", "worse": "red"}


def caption(comparison: RunComparison) -> str:
    """Say what text the table is of."""
    told = [f"{comparison['source']}:"]
    if comparison["sequences"] is not None:
        told.append(f"{counted(comparison['sequences'], 'sequence')} of")
    known = comparison["documents"]
    told.append("unknown documents" if known is None else counted(known, "document"))
    return " ".join([*told, "that all runs scored."])


def header(comparison: RunComparison) -> list[str]:
    """List the titles of the columns."""
    unit = comparison["unit"].replace("_", " ")
    return ["run", "model", *_units(comparison), f"gain, {unit}", "p", "it is"]


def rows(comparison: RunComparison) -> list[list[str]]:
    """Write the entries, a cell for each column."""
    units = _units(comparison).values()
    return [
        [
            entry["label"],
            _model(entry),
            *(_value_text(entry, key) for key in units),
            *_difference_texts(entry["against_first"]),
        ]
        for entry in comparison["entries"]
    ]


def markdown(comparison: RunComparison) -> str:
    """Write the table for GitHub."""
    parts = [
        markdown_text(caption(comparison)),
        markdown_table(header(comparison), rows(comparison)),
        "  \n".join(map(markdown_text, comparison["notes"])),
    ]
    return "\n\n".join(parts) + "\n"


def latex(comparison: RunComparison, command: str) -> str:
    """Write the table for a document that loads booktabs and graphicx."""
    titles = header(comparison)
    source = short_name(comparison["source"])
    told = " ".join([caption({**comparison, "source": source}), *comparison["notes"]])
    body = [
        " & ".join(map(tex_text, titles)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_tex_cell, row)) + r" \\" for row in rows(comparison)),
    ]
    alignment = "ll" + "r" * (len(titles) - 3) + "l"
    return latex_table(command, told, alignment, body, f"comparison-{short_name(source)}")


def show(comparison: RunComparison, console: Console | None = None) -> None:
    """Print the table and what it rests on."""
    console = console or Console()
    table = Table(
        caption=caption(comparison),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    titles, lines = header(comparison), rows(comparison)
    if console.is_terminal:  # a screen is narrow: models and intervals have lines of their own
        titles = ["run", *titles[2:]]
        lines = [[f"{run}\n{model}", *_below(cells)] for run, model, *cells in lines]
    words = len(titles) - 1
    for number, title in enumerate(titles):
        is_number = title not in ("run", "model") and number < words
        table.add_column(
            Text(title),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=number >= words - 1,
        )
    for *cells, word in lines:
        table.add_row(*map(Text, cells), Text(word, style=_STYLES.get(word, "")))
    fit_width(console, table)
    console.print(table)
    for note in comparison["notes"]:
        console.print(Text(note, style="dim"), soft_wrap=not console.is_terminal)


def _below(cells: list[str]) -> list[str]:
    """Put intervals, and the second ends of brackets, below."""
    return [cell.replace(" [", "\n[").replace(", <=", ",\n<=") for cell in cells]


def _units(comparison: RunComparison) -> dict[str, str]:
    """List the columns of values that there are, by title."""
    known = [entry["lower"] for entry in comparison["entries"]]
    units = {"perplexity": "ppl"} if comparison["unit"] == "nats_per_token" else {}
    if any(value["bits_per_byte"] is not None for value in known):
        units["bits per byte"] = "bits_per_byte"
    return units


def _model(entry: ComparedEntry) -> str:
    parts = [entry["checkpoint"] or "-"]
    if entry["block_size"] is not None:
        parts.append(f"blocks of {entry['block_size']}")
    if entry["regime"] is not None:
        parts.append(Regime.parse(entry["regime"]).title)
    return ", ".join(parts)


def _value_text(entry: ComparedEntry, key: str) -> str:
    """Write an exact value with its interval, or the bracket."""
    lower, upper = entry["lower"], entry["upper"]
    if lower["side"] is not None:
        low = "" if upper is None else f">= {_number(upper, key)}, "
        return f"{low}<= {_number(lower, key)}"
    interval = lower["ppl_ci95"] if key == "ppl" else lower["bits_per_byte_ci95"]
    ends = "" if interval is None else f" [{', '.join(_text(end, key) for end in interval)}]"
    return _number(lower, key) + ends


def _number(value: ComparedValue, key: str) -> str:
    return _text(value["ppl"] if key == "ppl" else value["bits_per_byte"], key)


def _text(value: float | None, key: str) -> str:
    if value is None:
        return "-"
    return ppl_text(value) if key == "ppl" else f"{value:.4f}"


def _difference_texts(against: AgainstFirst | None) -> list[str]:
    """Write the gain with its interval, the p-value of the nearer verdict, and the word."""
    if against is None:
        return ["-", "-", "the first"]
    ends = [_gain(against[end]) for end in ("at_least", "at_most")]
    low, high = against["at_least"], against["at_most"]
    text = " to ".join(dict.fromkeys(ends))
    if low and high and low["ci95"] and high["ci95"]:
        text += f" [{low['ci95'][0]:+.4f}, {high['ci95'][1]:+.4f}]"
    known = [p for p in (against["p_better"], against["p_worse"]) if p is not None]
    word = against["word"]
    p_text = "-" if not known or word == "not judged" else _p_text(min(known))
    return [text, p_text, word]


def _p_text(p_value: float) -> str:
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def _gain(difference: ComparedDifference | None) -> str:
    if difference is None:
        return "unknown"
    return "infinite" if difference["value"] is None else f"{difference['value']:+.4f}"


def _tex_cell(text: str) -> str:
    """Escape a cell; signed numbers have a minus, no hyphen."""
    if text[:1] in "+-" and text[1:2].isdigit():
        signed = text.replace(" to ", r" \mbox{ to } ").replace(" [", r"\ [")
        return f"${signed}$"
    return "--" if text == "-" else tex_text(text)
