"""What scoring takes of a device's memory: by arithmetic, and what a CPU really allocates.

python -m benchmarks.memory            # a minute on one core; prints the tables
python -m benchmarks.memory --write    # and puts them between the marks of docs/PERFORMANCE.md
"""

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.performance_page import run_as_command
from tube_lightning.doctor.expected import (
    BATCH_SIZE,
    BLOCK_SIZES,
    LENGTH,
    count_rows,
    published_footprint,
)
from tube_lightning.doctor.speed import PUBLISHED, middle_rows, random_model
from tube_lightning.memory import PeakMemory, fitting_budget
from tube_lightning.networks import BlockDiffusion
from tube_lightning.orderings import RevealedSets
from tube_lightning.scoring import conditional_rows

DEVICES = (4, 8, 24)
"""Gigabytes."""
MEASURED_BUDGETS = (1024, 2048, 4096)
_MIB = 2**20


def plan(experiment: str, dtype: str, gigabytes: int) -> tuple[int, PeakMemory]:
    """Return the token budget of an experiment on a device, and what is there at once."""
    network = published_footprint(dtype)
    entries = count_rows(experiment)[0] * BATCH_SIZE * LENGTH
    budget = fitting_budget(gigabytes * 10**9, network, network.weights, entries)
    return budget, network.peak(
        budget,
        length=LENGTH,
        batch_size=BATCH_SIZE,
        beside=network.weights,
        num_entries=entries,
    )


def measure_peak(model: BlockDiffusion, token_budget: int) -> tuple[int, int]:
    """Return the bytes that one micro-batch takes at most besides the weights: ours, and torch's.

    Ours is the arithmetic, without an accelerator's head; torch's are what its profiler sees
    allocated on a CPU, attention too.
    """
    size = PUBLISHED.block_size
    sets_a_block = 2**size - 1
    num_rows = token_budget // size
    tokens, sets = middle_rows(PUBLISHED, -(-num_rows // sets_a_block))
    sets = RevealedSets(
        sets.revealed[:num_rows], sets.needed[:num_rows], sets.block[:num_rows], index=()
    )
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        conditional_rows(model, tokens, sets, token_budget=token_budget)
    results = getattr(seen.profiler, "kineto_results", None)
    if results is None:
        raise RuntimeError("profiler: expected events of memory, got none")
    events = [event for event in results.events() if event.name() == "[memory]"]
    there = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        there += event.nbytes()
        most = max(most, there)
    ours = published_footprint("float32").peak(
        token_budget, length=LENGTH, batch_size=1, beside=0, num_entries=sets.needed.numel()
    )
    return ours.kept + ours.passing + ours.table, most


def make_tables() -> str:
    """Write what is planned, and what a CPU measures."""
    lines = [
        f"*Arithmetic*: published size (12 x 768), an ARM beside it, {BATCH_SIZE} sequences of "
        f"{LENGTH:,} tokens, MB:",
        "",
        "| L' | dtype | device | tokens at once | networks | clean keys | micro-batch | head "
        "| table | together | of the device |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for experiment, size in BLOCK_SIZES.items():
        for dtype in ("float32", "bfloat16"):
            for gigabytes in DEVICES:
                budget, peak = plan(experiment, dtype, gigabytes)
                parts = (peak.networks, peak.kept, peak.passing, peak.head, peak.table, peak.total)
                numbers = " | ".join(f"{part / 1e6:,.0f}" for part in parts)
                share = peak.total / (gigabytes * 1e9)
                lines.append(
                    f"| {size} | {dtype} | {gigabytes} GB | {budget:,} | {numbers} | {share:.0%} |"
                )
    lines += [
        "",
        "Measured on a CPU (L' = 4, fp32, one sequence and one micro-batch, without the weights):",
        "",
        "| tokens at once | arithmetic | allocated at most |",
        "|---:|---:|---:|",
    ]
    model = random_model(PUBLISHED, torch.device("cpu"))
    for budget in MEASURED_BUDGETS:
        ours, theirs = measure_peak(model, budget)
        lines.append(f"| {budget:,} | {ours / _MIB:,.0f} MiB | {theirs / _MIB:,.0f} MiB |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_as_command("memory", "What scoring takes of a device's memory.", make_tables)
