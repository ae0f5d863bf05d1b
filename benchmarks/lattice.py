"""How many blocks a second the exact computations take, and how that grows with the block.

    python -m benchmarks.lattice

The work of a computation is its number of edges: pairs of sets R in S of which S is reached from
R in one step. Exit code 1 when blocks of 8 positions (any-order ARM and T = 1, 2, 4, 8 together)
are slower than the target, which is what the network needs for them.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from tube_lightning.lattice import exact_cubo, exact_elbo, exact_log_likelihoods
from tube_lightning.orderings import EqualChunks, Steps

SIZES = (4, 8, 12, 16)
MDM_STEPS: tuple[Steps, ...] = (1, 2, 4, 8)
TARGET_SIZE, TARGET_BLOCKS_PER_SECOND = 8, 2000
SETS_A_BATCH = 1 << 17
MIN_REPEATS = 3


@dataclass(frozen=True)
class Computation:
    """An exact computation, its edges for a block of n positions, and the largest n to measure."""

    name: str
    run: Callable[[Tensor], Tensor]
    edges: Callable[[int], int]
    max_size: int = 16


@dataclass(frozen=True)
class Speed:
    """Blocks per second over several repeats."""

    best: float
    median: float
    repeats: int


def any_order_edges(size: int) -> int:
    """Count the pairs of sets that differ by one position."""
    return size << (size - 1)


def chunk_edges(size: int, chunks: EqualChunks) -> int:
    """Count the pairs of sets that differ by a chunk."""
    sizes = chunks.sizes(size)
    return sum(
        math.comb(size, after) * math.comb(after, chunk)
        for after, chunk in zip(accumulate(sizes), sizes, strict=True)
    )


def likelihoods(*regimes: Steps) -> Callable[[Tensor], Tensor]:
    """Return the likelihood of a table under all ``regimes`` as a function of the table."""
    return lambda table: exact_log_likelihoods(table, regimes)


COMPUTATIONS = (
    Computation("any-order", likelihoods(None), any_order_edges),
    Computation("T = 1, 2, 4, 8", likelihoods(*MDM_STEPS), lambda size: 3**size, max_size=12),
    Computation(
        "4 equal chunks",
        likelihoods(EqualChunks(4)),
        lambda size: chunk_edges(size, EqualChunks(4)),
    ),
    Computation("any-order ELBO", exact_elbo, any_order_edges),
    Computation("any-order CUBO", exact_cubo, any_order_edges),
)


def random_tables(size: int) -> Tensor:
    """Return a batch of float64 tables; the larger the blocks, the fewer."""
    generator = torch.Generator().manual_seed(size)
    shape = max(1, SETS_A_BATCH >> size), 2**size, size
    return -torch.rand(shape, generator=generator, dtype=torch.float64)


def measure(run: Callable[[Tensor], Tensor], tables: Tensor, seconds: float) -> Speed:
    """Repeat ``run`` for about ``seconds``, after a first time that fills the caches."""
    run(tables)
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while len(rates) < MIN_REPEATS or time.perf_counter() < end:
        start = time.perf_counter()
        run(tables)
        rates.append(len(tables) / (time.perf_counter() - start))
    return Speed(max(rates), statistics.median(rates), len(rates))


def rounded(rate: float) -> str:
    """Print a rate with no more digits than it deserves."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def speed_table(seconds: float) -> Table:
    """Measure every computation at every size that it takes."""
    table = Table(title="Blocks per second; growth is of the time a block, from 4 positions fewer")
    table.add_column("exact", no_wrap=True)
    for heading in ("n", "edges", "best", "median", "repeats", "growth"):
        table.add_column(heading, justify="right", no_wrap=True)
    for computation in COMPUTATIONS:
        previous = math.nan
        for size in (size for size in SIZES if size <= computation.max_size):
            speed = measure(computation.run, random_tables(size), seconds)
            growth = previous / speed.median
            table.add_row(
                computation.name,
                str(size),
                f"{computation.edges(size):,}",
                rounded(speed.best),
                rounded(speed.median),
                str(speed.repeats),
                "" if math.isnan(growth) else f"x {growth:.1f}",
            )
            previous = speed.median
        table.add_section()
    return table


def main() -> int:
    """Print the figures; return 1 when the target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lattice", description="Blocks per second, exactly scored."
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time for each figure (default: %(default)s)"
    )
    seconds = parser.parse_args().seconds
    console = Console()
    console.print(speed_table(seconds))
    speed = measure(likelihoods(None, *MDM_STEPS), random_tables(TARGET_SIZE), seconds)
    passed = speed.median >= TARGET_BLOCKS_PER_SECOND
    console.print(
        f"{'PASS' if passed else 'FAIL'}: n = {TARGET_SIZE}, any-order and T = 1, 2, 4, 8 at once: "
        f"{rounded(speed.median)} blocks/s (best {rounded(speed.best)}), "
        f"target {TARGET_BLOCKS_PER_SECOND:,}, {torch.get_num_threads()} thread(s)"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
