"""How fast is the scoring engine, against the forward pass as the original code runs it?

python -m benchmarks.scoring                   # all of it: about eight minutes on two cores
python -m benchmarks.scoring --models small    # under two minutes
python -m benchmarks.scoring --family sdar     # a diffusion decoder: benchmarks/decoders.py

Naive: every ordering, every step of every regime, one two-stream forward with the full head. A
few such calls are timed (best batch size of those tried) and multiplied by their number. Ours: the
exact conditional table for blocks of 4 and 8, sampled orderings for blocks of 16; both score the
same regimes. Same weights, same tokens; results are compared before anything is timed.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import decoders
from benchmarks.naive import two_stream_log_probs
from benchmarks.timing import seconds
from tube_lightning.memory import CPU_TOKENS
from tube_lightning.networks import BlockDiffusion, DiT, DiTConfig, linear
from tube_lightning.orderings import RevealedSets, distinct_sets, reveal_steps, reveal_times
from tube_lightning.scoring import conditional_rows, conditional_table

SIZES: dict[str, Any] = {
    "published": {"vocab_size": 50_258, "hidden_dim": 768, "n_blocks": 12, "n_heads": 12},
    "small": {"vocab_size": 257, "hidden_dim": 128, "n_blocks": 4, "n_heads": 4},
}
ORDERINGS = {4: 24, 8: 64, 16: 128}
REGIMES: dict[int, tuple[int | None, ...]] = {
    4: (None, 1, 2, 4),
    8: (None, 1, 2, 4, 8),
    16: (None, 1, 2, 4, 8, 16),
}
TARGETS = {4: 35.0, 8: 10.0, 16: 7.0}
TARGET_SHARE = 0.6
NAIVE_BATCHES = (1, 2)


@dataclass(frozen=True)
class Setup:
    """One model and one text to score."""

    network: DiT
    model: BlockDiffusion
    tokens: Tensor
    block_size: int

    @property
    def num_blocks(self) -> int:
        """Blocks in the text."""
        return self.tokens.numel() // self.block_size


@dataclass(frozen=True)
class Measurement:
    """One row of the result."""

    name: str
    block_size: int
    what: str
    naive_calls: int
    naive_seconds: float
    our_seconds: float
    our_flop: float
    matmul_rate: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.naive_seconds / self.our_seconds

    @property
    def share(self) -> float:
        """How much of the machine's matmul rate ours reaches."""
        return self.our_flop / self.our_seconds / self.matmul_rate


def make_setup(size: str, block_size: int, length: int, seed: int = 0) -> Setup:
    """Make a network with random weights (all of them, so that nothing is trivially zero)."""
    torch.manual_seed(seed)
    config = DiTConfig(model_length=length, block_size=block_size, **SIZES[size])
    network = DiT(config).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    tokens = torch.randint(0, config.mask_id, (1, length))
    return Setup(network, BlockDiffusion.from_network(network), tokens, block_size)


def sampled_sets(setup: Setup, num_orderings: int, num_blocks_scored: int) -> RevealedSets:
    """Draw fresh orderings for evenly spaced blocks and collect the sets of all regimes."""
    times = reveal_times(
        0, [0], range(setup.num_blocks), num_orderings=num_orderings, size=setup.block_size
    )[0]
    sets = distinct_sets(*(reveal_steps(times, steps) for steps in REGIMES[setup.block_size]))
    stride = setup.num_blocks // num_blocks_scored
    kept = sets.block % stride == stride - 1
    return RevealedSets(sets.revealed[kept], sets.needed[kept], sets.block[kept], index=())


def check_equal(setup: Setup, state: dict[str, Tensor], num_masks: int = 3) -> float:
    """Compare with the naive forward on random masks of all blocks; return the largest error."""
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for _ in range(num_masks):
        masked = torch.rand(setup.tokens.shape, generator=generator) < 0.5
        naive = run_naive(setup, state, setup.tokens, masked)
        rows = masked.view(-1, setup.block_size)
        sets = RevealedSets(~rows, rows, torch.arange(len(rows)), index=())
        ours = conditional_rows(setup.model, setup.tokens, sets).view_as(naive)
        worst = max(worst, (ours - naive).abs().max().item())
    if worst > 1e-3:
        raise SystemExit(f"results differ by {worst:.2e} nats: nothing to time")
    return worst


def run_naive(setup: Setup, state: dict[str, Tensor], tokens: Tensor, masked: Tensor) -> Tensor:
    """Call the forward of the original once."""
    with torch.inference_mode():
        return two_stream_log_probs(
            state,
            tokens,
            masked,
            block_size=setup.block_size,
            n_heads=setup.network.config.n_heads,
        )


def naive_seconds_a_call(setup: Setup, state: dict[str, Tensor], repeats: int) -> float:
    """Return the naive time for one noisy version of the text, at its best batch size."""
    best = float("inf")
    for batch in NAIVE_BATCHES:
        tokens = setup.tokens.expand(batch, -1)
        masked = torch.rand(tokens.shape) < 0.5
        run_naive(setup, state, tokens, masked)
        taken = seconds(lambda t=tokens, m=masked: run_naive(setup, state, t, m), repeats)  # type: ignore[misc]
        best = min(best, statistics.median(taken) / batch)
    return best


def matmul_flop(config: DiTConfig, clean: int, noisy: int, needed: int) -> float:
    """Count the linear maps' floating-point operations (attention itself not counted)."""
    dim, layers = config.hidden_dim, config.n_blocks
    projections, rest = 2 * 3 * dim**2, 2 * 9 * dim**2
    trunk = (clean + noisy) * (layers * projections + (layers - 1) * rest) + needed * rest
    return trunk + needed * 2 * dim * config.vocab_size


def matmul_rate(dim: int, tokens: int, repeats: int = 12) -> float:
    """Measure the machine's fp32 rate on the trunk's four shapes, by our linear map, in FLOP/s.

    The rate of shared machines drifts by tens of percent within minutes, so it is measured right
    before and after what it is compared with.
    """
    shapes = [(dim, 3 * dim), (dim, dim), (dim, 4 * dim), (4 * dim, dim)]
    inputs = [(torch.randn(tokens, i), torch.randn(o, i)) for i, o in shapes]
    taken = 0.0
    with torch.inference_mode():
        for x, weight in inputs:
            taken += statistics.median(seconds(lambda x=x, w=weight: linear(x, w), repeats)[2:])  # type: ignore[misc]
    return 2 * tokens * 12 * dim**2 / taken


def measure(name: str, block_size: int, length: int, repeats: int) -> Measurement:
    """Time both ways of scoring all regimes of one block size."""
    setup = make_setup(name, block_size, length)
    state = {f"backbone.{key}": value for key, value in setup.network.state_dict().items()}
    error = check_equal(setup, state)
    print(f"{name}, L'={block_size}: agrees with the naive forward to {error:.1e} nats")
    config, num_orderings = setup.network.config, ORDERINGS[block_size]
    calls = num_orderings * sum(block_size if t is None else t for t in REGIMES[block_size])
    clean = length - block_size
    if block_size <= 8:
        what = f"exact table, {2**block_size - 1} sets"
        scale, call = 1.0, lambda: conditional_table(setup.model, setup.tokens)
        noisy = setup.num_blocks * (2**block_size - 1) * block_size
        needed = setup.num_blocks * block_size * 2 ** (block_size - 1)
    else:
        part = 8 if name == "published" else 1
        sets = sampled_sets(setup, num_orderings, setup.num_blocks // part)
        scale = float(part)
        what = f"{num_orderings} orderings, {scale * len(sets.block) / setup.num_blocks:.0f} sets"
        what += f" (1 block in {part} timed, times {part})" if part > 1 else ""
        call = lambda: conditional_rows(setup.model, setup.tokens, sets)  # noqa: E731
        noisy, needed = sets.revealed.numel(), int(sets.needed.sum())
    flop = matmul_flop(config, clean, noisy, needed)
    rates, naive, taken = [matmul_rate(config.hidden_dim, CPU_TOKENS)], [], []
    for _ in range(repeats):  # in turns, so that both meet the machine in the same states
        naive.append(naive_seconds_a_call(setup, state, 3) * calls)
        taken += seconds(call, 1)
        rates.append(matmul_rate(config.hidden_dim, CPU_TOKENS))
    return Measurement(
        name,
        block_size,
        what,
        calls,
        naive_seconds=statistics.median(naive),
        our_seconds=statistics.median(taken) * scale,
        our_flop=flop * scale,
        matmul_rate=statistics.mean(rates),
    )


def report(console: Console, rows: Sequence[Measurement]) -> bool:
    """Print the comparison; return whether the published size meets its targets."""
    table = Table(title="One sequence, all regimes: seconds (naive = timed calls x their number)")
    for column in (
        "model",
        "L'",
        "ours",
        "naive calls",
        "naive s",
        "ours s",
        "ratio",
        "of GFLOP/s",
    ):
        table.add_column(column, justify="left" if column in ("model", "ours") else "right")
    met = True
    for row in rows:
        target = ""
        if row.name == "published":
            passed = row.ratio >= TARGETS[row.block_size] and row.share >= TARGET_SHARE
            met, target = met and passed, f" (target {TARGETS[row.block_size]:.0f}x)"
        table.add_row(
            row.name,
            str(row.block_size),
            row.what,
            f"{row.naive_calls:,}",
            f"{row.naive_seconds:,.1f}",
            f"{row.our_seconds:,.2f}",
            f"{row.ratio:.1f}x{target}",
            f"{row.share:.0%} of {row.matmul_rate / 1e9:.0f}",
        )
    console.print(table)
    return met


def report_growth(console: Console) -> None:
    """Print time against length and orderings, and peak memory against orderings."""
    table = Table(title="How it grows (small model, L'=16, sampled)")
    for column in ("length", "orderings", "sets a block", "seconds", "us a row", "peak MiB"):
        table.add_column(column, justify="right")
    cases = [(length, 32) for length in (64, 128, 256, 512)]
    cases += [(256, orderings) for orderings in (8, 32, 128, 512)]
    for length, orderings in cases:
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.scoring", "--probe", str(length), str(orderings)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        table.add_row(f"{length}", f"{orderings}", *out)
    console.print(table)


def probe(length: int, orderings: int) -> None:
    """Score one text in this process and print sets a block, seconds and peak memory."""
    setup = make_setup("small", 16, length)
    sets = sampled_sets(setup, orderings, setup.num_blocks)
    conditional_rows(setup.model, setup.tokens, replace_block(sets, 64))
    taken = min(seconds(lambda: conditional_rows(setup.model, setup.tokens, sets), 2))
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    rows = len(sets.block)
    print(f"{rows / setup.num_blocks:.0f} {taken:.2f} {taken / rows * 1e6:.0f} {peak:.0f}")


def replace_block(sets: RevealedSets, count: int) -> RevealedSets:
    """Keep the first rows only: a warm-up."""
    return replace(
        sets, revealed=sets.revealed[:count], needed=sets.needed[:count], block=sets.block[:count]
    )


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--block-sizes", nargs="+", type=int, choices=ORDERINGS, default=[4, 8, 16])
    parser.add_argument("--length", type=int, default=256, help="tokens in the text (256)")
    parser.add_argument("--repeats", type=int, default=3, help="timings of each call (3)")
    parser.add_argument("--probe", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--family", choices=decoders.FAMILIES, help="a diffusion decoder instead")
    parser.add_argument("--cpu-time", action="store_true", help="of it, by the process's CPU clock")
    options = parser.parse_args()
    if options.probe:
        probe(*options.probe)
        return
    console = Console(width=130)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32")
    if options.family:
        clock = time.process_time if options.cpu_time else time.perf_counter
        length = min(options.length, 128)
        met = decoders.run(console, options.family, length, options.repeats, clock)
        console.print("targets met" if met else "targets NOT met")
        sys.exit(0 if met else 1)
    rows = []
    for name in options.models:
        for block_size in options.block_sizes:
            repeats = 1 if name == "published" and block_size > 4 else options.repeats
            rows.append(measure(name, block_size, options.length, repeats))
    met = report(console, rows)
    if "small" in options.models:
        report_growth(console)
    if "published" in options.models:
        console.print("targets met" if met else "targets NOT met")
        sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
