"""Results that print as people read them: a table and a verdict."""

import io
from typing import Any, cast

from rich.console import Console

from tube_lightning.report.render import markdown, show_results
from tube_lightning.report.schema import Results

_WIDTH = 100


class ShownResults(dict[str, Any]):
    """A mapping with the content of ``results.json``; printed, it is the table and the verdict."""

    def __repr__(self) -> str:
        """Write the table as plain text."""
        page = io.StringIO()
        show_results(cast("Results", self), Console(file=page, width=_WIDTH, force_jupyter=False))
        return page.getvalue()

    def _repr_markdown_(self) -> str:
        """Write the table as notebooks show it."""
        return markdown(cast("Results", self))
