"""What do ranks lose by waiting for each other? Counted, simulated and timed.

    python -m benchmarks.waits            # two minutes on two cores; prints the tables
    python -m benchmarks.waits --write    # and puts them between the marks of docs/PERFORMANCE.md

Two ways to keep many ranks together. In *lock-step* all of them meet after every batch, to agree
whether to stop and to add up what people watch. With the *noticeboard* each tells what it has, goes
on, and waits once, at the end. The simulation draws how long batches take and adds up; real
processes that sleep for as long, instead of scoring, are what it is held against.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.performance_page import run_as_command
from benchmarks.sleeping_ranks import (
    NOTICEBOARD,
    STOP_AND_VALUES,
    STOP_ONLY,
    Seconds,
    Timed,
    measure_ranks,
)

NUM_TURNS, NUM_DRAWS = 100, 200
REAL_RANKS, REAL_TURNS, REAL_MEAN = 4, 20, 0.1
Draw = Callable[[np.random.Generator, tuple[int, ...]], Seconds]


def _even(chance: np.random.Generator, shape: tuple[int, ...]) -> Seconds:
    return chance.normal(1.0, 0.02, shape).clip(min=0.5)


def _documents(chance: np.random.Generator, shape: tuple[int, ...]) -> Seconds:
    return chance.lognormal(-(0.5**2) / 2, 0.5, shape)


def _pauses(chance: np.random.Generator, shape: tuple[int, ...]) -> Seconds:
    return _even(chance, shape) * np.where(chance.random(shape) < 0.02, 5.0, 1.0)


SCENARIOS: Mapping[str, tuple[Draw, float]] = {
    "windows of one length: 2% noise": (_even, 1.0),
    "documents of any length: log-normal, sigma 0.5": (_documents, 1.0),
    "a pause of 4 batches in 2% of them": (_pauses, 1.0),
    "one device 20% slower, else 2% noise": (_even, 1.2),
}
"""How long batches take, one on average, and how much longer on the last rank."""


@dataclass(frozen=True)
class Lost:
    """Which share of the ranks' time is spent waiting."""

    scenario: str
    num_ranks: int
    lock_step: float
    noticeboard: float
    one_queue: float
    """if whoever is free took the next batch, which an evaluation does not do"""


def simulate(scenario: str, num_ranks: int) -> Lost:
    """Add up drawn batches, dealt one by one as an evaluation deals them."""
    draw, slowness = SCENARIOS[scenario]
    batches = draw(np.random.default_rng((7, num_ranks)), (NUM_DRAWS, NUM_TURNS, num_ranks))
    slow = np.ones(num_ranks)
    slow[-1] = slowness
    seconds = (batches * slow).swapaxes(1, 2)
    work = seconds.sum(axis=2).mean(axis=1)
    lock_step, noticeboard = (float(1 - (work / whole).mean()) for whole in durations(seconds))
    from_one_queue = np.mean([_lost_with_one_queue(some.ravel(), slow) for some in batches])
    return Lost(scenario, num_ranks, lock_step, noticeboard, float(from_one_queue))


def durations(seconds: Seconds) -> tuple[Seconds, Seconds]:
    """Return how long all takes in lock-step, and with the noticeboard.

    Turn by turn the slowest rank, or the rank that is slowest in all.
    """
    return seconds.max(axis=-2).sum(axis=-1), seconds.sum(axis=-1).max(axis=-1)


def _lost_with_one_queue(batches: Seconds, slow: Seconds) -> float:
    """Return the share lost if whoever is free takes the next batch."""
    free = [(0.0, rank) for rank in range(len(slow))]
    for seconds in batches:
        at, rank = heapq.heappop(free)
        heapq.heappush(free, (at + seconds * slow[rank], rank))
    ends = [at for at, _ in free]
    return 1 - sum(ends) / len(ends) / max(ends)


def render(simulated: list[Lost], naps: Seconds, timed: Mapping[str, Timed]) -> str:
    """Write the two tables."""
    lines = [
        f"Simulated: the share of device time lost to waiting, {NUM_TURNS} batches a rank, mean of "
        f"{NUM_DRAWS} draws (*arithmetic* on drawn durations):",
        "",
        "| batches | ranks | lock-step | noticeboard | one queue (not done) |",
        "|---|---:|---:|---:|---:|",
    ]
    for one in simulated:
        lines.append(
            f"| {one.scenario} | {one.num_ranks} | {one.lock_step:.1%} | {one.noticeboard:.1%} "
            f"| {one.one_queue:.1%} |"
        )
    lock_step, noticeboard = durations(naps)
    expected = {STOP_ONLY: lock_step, STOP_AND_VALUES: lock_step, NOTICEBOARD: noticeboard}
    lines += [
        "",
        f"Measured: {REAL_RANKS} processes on this CPU (gloo) that sleep {REAL_TURNS} log-normal "
        f"naps of {REAL_MEAN:g} s each:",
        "",
        "| | collectives a batch | seconds of an empty turn | all, simulated | all, measured |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, found in timed.items():
        lines.append(
            f"| {name} | {found.collectives:,} | {found.after_a_batch:.4f} "
            f"| {expected[name]:.2f} s | {found.whole:.2f} s |"
        )
    return "\n".join(lines) + "\n"


def make_tables() -> str:
    """Simulate every scenario, and hold one against real processes."""
    simulated = [simulate(name, ranks) for name in SCENARIOS for ranks in (2, 8, 64)]
    naps = REAL_MEAN * _documents(np.random.default_rng(7), (REAL_RANKS, REAL_TURNS))
    return render(simulated, naps, measure_ranks(naps))


if __name__ == "__main__":
    run_as_command("waits", "What ranks lose by waiting for each other.", make_tables)
