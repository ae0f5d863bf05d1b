"""Put the results of runs into a page: what stands between ``<!-- run: NAME -->`` marks.

    python evaluate.py experiment=demo_l4       # and the others that the page names
    python -m benchmarks.results_page           # docs/RESULTS.md from outputs/evaluate/NAME

A mark may list figures behind the name; they are copied beside the page. Whatever else stands in
the page is left alone, so that its prose is written by people and its numbers by runs.
"""

import argparse
import json
import re
import shutil
from pathlib import Path

from tube_lightning.rundir import FIGURES_FOLDER, MARKDOWN_FILE, RESULTS_FILE

PAGE = Path(__file__).parent.parent / "docs" / "RESULTS.md"
RUNS = Path("outputs/evaluate")
_MARKED = re.compile(r"<!-- run: (?P<name>\S+)(?P<figures>[^>]*) -->\n.*?<!-- end of run -->", re.S)


def fill(page: str, runs: Path, figures: Path) -> str:
    """Return a page with the present results of its runs; their figures go to a folder."""

    def write(mark: re.Match[str]) -> str:
        name, names = mark["name"], mark["figures"].split()
        body = describe_run(name, runs / name)
        for figure in names:
            file = f"{name}_{figure}.png"
            shutil.copy(runs / name / FIGURES_FOLDER / f"{figure}.png", figures / file)
            body += f"\n![{figure} of {name}](figures/{file})\n"
        return f"<!-- run: {' '.join([name, *names])} -->\n{body}<!-- end of run -->"

    return _MARKED.sub(write, page)


def describe_run(name: str, directory: Path) -> str:
    """Write the command, the table and the cost of a run."""
    if not (directory / RESULTS_FILE).exists():
        raise FileNotFoundError(f"{directory}: expected the run of experiment={name}, got nothing")
    results = json.loads((directory / RESULTS_FILE).read_text())
    counts, seconds = results["counts"], results["seconds"]
    return (
        f"\n```bash\npython evaluate.py experiment={name}\n```\n\n"
        f"{(directory / MARKDOWN_FILE).read_text()}\n"
        f"Cost: {seconds['scoring']:.0f} s of scoring and {seconds['report']:.0f} s of report for "
        f"{counts['blocks']:,} blocks; tokens `{results['data']['token_sha256'][:12]}`.\n"
    )


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results_page", description="Put results of runs into a page."
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--runs", type=Path, default=RUNS, help="%(default)s")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    figures = options.page.parent / "figures"
    options.page.write_text(fill(page, options.runs, figures), encoding="utf-8")


if __name__ == "__main__":
    main()
