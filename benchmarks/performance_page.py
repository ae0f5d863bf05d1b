"""Tables of docs/PERFORMANCE.md: each is made by one command, and stands between marks."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "PERFORMANCE.md"


def fill(page: str, name: str, table: str) -> str:
    """Return a page with a table between the marks of its name."""
    marked = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end of table -->)", re.S)
    if len(marked.findall(page)) != 1:
        raise ValueError(f"page: expected the marks <!-- table: {name} --> ... once")
    return marked.sub(lambda mark: f"{mark[1]}{table}{mark[2]}", page)


def run_as_command(name: str, description: str, make_table: Callable[[], str]) -> None:
    """Print a table, and put it into the page where ``--write`` asks for it."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name}")
    options = parser.parse_args()
    table = make_table()
    print(table, end="")
    if options.write:
        page = fill(PAGE.read_text(encoding="utf-8"), name, table)
        PAGE.write_text(page, encoding="utf-8")
