"""Where bars and lines for people go: the screen, or a notebook, beside what programs read."""

from importlib.util import find_spec

from rich.console import Console

_NOTEBOOK_WIDTH = 100


def bar_console() -> Console:
    """Make a console for bars.

    A notebook without ipywidgets, for which rich only warns, gets them as a terminal does.
    """
    console = Console(stderr=True)
    if not console.is_jupyter or find_spec("ipywidgets") is not None:
        return console
    return Console(stderr=True, force_jupyter=False, force_terminal=True, width=_NOTEBOOK_WIDTH)
