"""docs/PERFORMANCE.md: benchmarks put their tables between marks of it."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "PERFORMANCE.md"


def fill(page: str, name: str, table: str) -> str:
    """Return a page with a table between its marks."""
    marked = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end of table -->)", re.S)
    if len(marked.findall(page)) != 1:
        raise ValueError(f"page: expected the marks <!-- table: {name} --> ... once")
    return marked.sub(lambda mark: f"{mark[1]}{table}{mark[2]}", page)


def write_table(name: str, table: str) -> None:
    """Put a table between its marks of the page."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), name, table), encoding="utf-8")
