"""Seconds of calls."""

import time
from collections.abc import Callable
from typing import Any

Clock = Callable[[], float]


def seconds(call: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> list[float]:
    """Time a call several times.

    The clock of this process's CPU, ``time.process_time``, leaves out what neighbours on a busy
    machine take; it counts every thread, those that wait included: give it one.
    """
    taken = []
    for _ in range(repeats):
        start = clock()
        call()
        taken.append(clock() - start)
    return taken
