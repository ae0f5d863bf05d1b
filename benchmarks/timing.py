"""Seconds of calls."""

import time
from collections.abc import Callable
from typing import Any


def seconds(call: Callable[[], Any], repeats: int) -> list[float]:
    """Time a call several times."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken
