"""Where does the time of scoring go? Shares by torch's profiler, into docs/PERFORMANCE.md.

    python -m benchmarks.profile            # two minutes on one core; prints the table
    python -m benchmarks.profile --write    # and puts it between the marks of the page

Attention is what a planner's function does (and the clean stream's own), the head what
``token_log_probs`` does; linear maps elsewhere are the trunk's matmuls, and other operators the
rest: norms, rotations, sets. What is left of the wall clock is Python between the operators,
and the profiler's own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.performance_page import run_as_command
from tube_lightning.checkpoints import load_block_model
from tube_lightning.doctor.speed import PUBLISHED, middle_rows, random_model
from tube_lightning.networks import BlockDiffusion, NoisyRows, block_diffusion, default_attention
from tube_lightning.networks.head import token_log_probs
from tube_lightning.orderings import RevealedSets
from tube_lightning.scoring import conditional_rows

KINDS = ("trunk matmuls", "attention", "head", "rest")
BETWEEN = "between operators"
LINEAR_MAPS = ("aten::linear", "mkldnn::_linear_pointwise")
CPU = torch.device("cpu")
_ROWS = 510
"""Of the published size: two micro-batches of blocks of 4."""


@dataclass(frozen=True)
class Shares:
    """Seconds of one network's scoring, by kind."""

    what: str
    rows: int
    wall: float
    seconds: dict[str, float]

    def share(self, kind: str) -> float:
        """Return the part of the wall clock that is of one kind."""
        known = sum(self.seconds.values())
        return (self.wall - known if kind == BETWEEN else self.seconds[kind]) / self.wall


def classify(event: FunctionEvent) -> str:
    """Tell the kind of an operator by those that called it."""
    linear = False
    at: FunctionEvent | None = event
    while at is not None:
        if at.name in ("attention", "head"):
            return at.name
        if at.name == "aten::scaled_dot_product_attention":
            return "attention"
        linear |= at.name in LINEAR_MAPS
        at = at.cpu_parent
    return "trunk matmuls" if linear else "rest"


def measure(what: str, model: BlockDiffusion, tokens: Tensor, sets: RevealedSets) -> Shares:
    """Score some rows under the profiler."""
    model.plan_attention = _labelled_plan
    few = RevealedSets(sets.revealed[:15], sets.needed[:15], sets.block[:15], index=())
    with patch.object(block_diffusion, "token_log_probs", _labelled("head", token_log_probs)):
        with profile(activities=[ProfilerActivity.CPU]):  # the first one is slow to start
            conditional_rows(model, tokens, few)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            start = time.perf_counter()
            conditional_rows(model, tokens, sets)
            wall = time.perf_counter() - start
    seconds = dict.fromkeys(KINDS, 0.0)
    for event in profiler.events() or ():
        seconds[classify(event)] += event.self_cpu_time_total / 1e6
    return Shares(what, len(sets.block), wall, seconds)


def _labelled(name: str, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: object) -> Tensor:
        with record_function(name):
            return call(*args)

    return run


def _labelled_plan(rows: NoisyRows, clean_length: int) -> Callable[..., Tensor]:
    return _labelled("attention", default_attention(CPU)(rows, clean_length))


def measure_all() -> list[Shares]:
    """Profile the embedded models and the published size, exactly scored."""
    found = []
    for size, blocks in ((4, 256), (8, 16)):
        model = load_block_model(f"demo:bd3lm_l{size}")
        if not isinstance(model, BlockDiffusion):
            raise TypeError(f"demo:bd3lm_l{size}: expected a network of ours")
        what = f"embedded (4 x 128), L' = {size}"
        found.append(measure(what, model, *middle_rows(model.config, blocks)))
    for size in (4, 8):
        config = replace(PUBLISHED, block_size=size)
        blocks = max(1, _ROWS * 4 // (size * (2**size - 1)))
        what = f"published size (12 x 768), L' = {size}"
        found.append(measure(what, random_model(config, CPU), *middle_rows(config, blocks)))
    return found


def render(found: list[Shares]) -> str:
    """Write the table."""
    threads = torch.get_num_threads()
    lines = [
        f"torch {torch.__version__}, {threads} thread{'s' if threads > 1 else ''}, fp32:",
        "",
        f"| network | rows | seconds | {' | '.join((*KINDS, BETWEEN))} |",
        f"|---|{'---:|' * (len(KINDS) + 3)}",
    ]
    for one in found:
        shares = " | ".join(f"{one.share(kind):.0%}" for kind in (*KINDS, BETWEEN))
        lines.append(f"| {one.what} | {one.rows:,} | {one.wall:.2f} | {shares} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_as_command("profile", "Where the time of scoring goes.", lambda: render(measure_all()))
