"""What a loader says besides its errors: what it took for granted."""

import sys


def say(text: str) -> None:
    """Tell the user on the screen's error stream, where it mixes with no result."""
    print(text, file=sys.stderr)
