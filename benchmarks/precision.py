"""What does model.dtype=bfloat16 do to exact values and brackets? Measured on a CPU.

    python -m benchmarks.precision            # some minutes on one core; prints the table
    python -m benchmarks.precision --write    # and puts it between the marks of docs/PERFORMANCE.md

The same networks on the same text with the same orderings, their matrix products in fp32 and in
bf16: any order, block by block and over the text. The embedded networks are trained and tiny. A
network of the published size has random weights here, so it says how rounding adds up over 12
layers 768 wide, and not what a trained one makes of it. Its predictions are flat, or with larger
weights in its head as sharp as a language model's. The shifts of one network's blocks may go
together, so that their spread tells too small an error: other seeds show.
"""

import math
import os

# bf16 matmuls of newer instruction sets can end the process on some virtual machines
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float64, Int64
from torch import Tensor

from benchmarks.performance_page import run_as_command
from tube_lightning.bounds import elbo_k, tube_loo
from tube_lightning.checkpoints import Checkpoint, load_arm, load_block_model
from tube_lightning.data import demo_sequences, sequence_order
from tube_lightning.doctor.speed import PUBLISHED, middle_rows
from tube_lightning.evaluator import Plan, score_batch
from tube_lightning.lattice import exact_log_likelihood, score_orderings
from tube_lightning.networks import BlockDiffusion, DiT
from tube_lightning.orderings import block_roles, reveal_times
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import ANY_ORDER
from tube_lightning.scoring import conditional_rows

SEQUENCES = {4: 32, 8: 8, 16: 3}
"""How many sequences of 128 tokens of the held-out text, by block size."""
PUBLISHED_BLOCKS = 17
FLAT, SHARP = 0.02, 0.15
"""Standard deviations of a random head's weights: logits have 28 times as much, 0.6 and 4."""
DTYPES = (torch.float32, torch.bfloat16)
BlockValues = dict[str, Float64[Tensor, " blocks"]]
"""By quantity, in nats."""


@dataclass(frozen=True)
class Shift:
    """One quantity of one network: what bf16 makes of it."""

    network: str
    quantity: str
    fp32: Float64[Tensor, " blocks"]
    bf16: Float64[Tensor, " blocks"]
    num_tokens: int

    @property
    def differences(self) -> Float64[Tensor, " blocks"]:
        """bf16 less fp32, block by block."""
        return self.bf16 - self.fp32

    def nats_per_token(self, values: Float64[Tensor, " blocks"]) -> float:
        """Return the rate over all blocks."""
        return values.sum().item() / self.num_tokens

    def standard_error(self) -> float:
        """Return the error of the shift per token, as if blocks were independent."""
        spread = self.differences.std().item() * math.sqrt(len(self.differences))
        return spread / self.num_tokens


def demo_shifts(size: int) -> Iterator[Shift]:
    """Score an embedded block model, and the ARM beside the one with blocks of 4."""
    text = demo_sequences("heldout")
    ids = sequence_order(len(text), "spread")[: SEQUENCES[size]]
    tokens = text.tokens[ids]
    roles = block_roles(tokens.shape[1], size).expand(len(ids), -1, -1)
    plan = Plan(Protocol(nfe=[1]), size)
    found = []
    for dtype in DTYPES:
        model: Any = load_block_model(Checkpoint(f"demo:bd3lm_l{size}", dtype=dtype))
        arms = {"arm": load_arm(Checkpoint("demo:arm", dtype=dtype))} if size == 4 else {}
        found.append(score_batch(model, arms, tokens, roles, ids, plan))
    values = []
    for scores in found:
        regime = scores.regimes[ANY_ORDER.name]
        exact = {} if regime.exact is None else {"exact": regime.exact}
        bounds = {"ELBO_K": elbo_k(regime.scores), "TUBE": tube_loo(regime.scores)}
        arm = {"ARM": scores.arms["arm"]} if scores.arms else {}
        values.append({**exact, **bounds, **arm})
    num_tokens = int(found[0].num_tokens.sum())
    yield from _shifts(f"embedded (4 x 128), L' = {size}", values, num_tokens)


def published_shifts(head_std: float, seed: int) -> Iterator[Shift]:
    """Score a random network of the published size, exactly and by sampled orderings."""
    values = []
    tokens, sets = middle_rows(PUBLISHED, PUBLISHED_BLOCKS)
    network = _random_network(head_std, seed)
    for dtype in DTYPES:
        with torch.no_grad():
            rows = conditional_rows(BlockDiffusion.from_network(network, dtype), tokens, sets)
        values.append(_any_order(rows, sets.block))
    num_tokens = PUBLISHED_BLOCKS * PUBLISHED.block_size
    what = f"{'flat' if head_std == FLAT else 'sharp'}, seed {seed}"
    yield from _shifts(f"published size (12 x 768), {what}, L' = 4", values, num_tokens)


def _random_network(head_std: float, seed: int) -> DiT:
    """Make a network in which every layer adds as much to the stream as the embedding has."""
    with torch.device("meta"):
        network = DiT(replace(PUBLISHED, adaln=False))
    network = network.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.constant_(parameter, float("norm" in name))
            continue
        std = 1.0 if "embed" in name else parameter.shape[1] ** -0.5
        std = head_std if "output" in name else std
        torch.nn.init.normal_(parameter, std=std, generator=generator)
    return network


def _any_order(rows: Float64[Tensor, "rows size"], block: Int64[Tensor, " rows"]) -> BlockValues:
    """Put the rows of all sets but the full one into tables, and sum over orders."""
    num_blocks, size = len(block.unique()), rows.shape[1]
    table = F.pad(rows.view(num_blocks, -1, size), (0, 0, 0, 1))
    times = reveal_times(0, range(num_blocks), num_orderings=24, size=size)[:, 0]
    scores = score_orderings(table, times)
    return {
        "exact": exact_log_likelihood(table),
        "ELBO_K": elbo_k(scores),
        "TUBE": tube_loo(scores),
    }


def _shifts(
    network: str, values: list[Mapping[str, Tensor]] | list[BlockValues], num_tokens: int
) -> Iterator[Shift]:
    fp32, bf16 = values
    for name in fp32:
        yield Shift(network, name, fp32[name].flatten(), bf16[name].flatten(), num_tokens)


def render(shifts: list[Shift]) -> str:
    """Write the table."""
    lines = [
        f"torch {torch.__version__}, any order; bf16 less fp32, in nats:",
        "",
        "| network | quantity | blocks | a block: typical | largest | a token, over the text "
        "| perplexity in fp32 | in bf16 |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in shifts:
        differences = one.differences
        typical = differences.square().mean().sqrt().item()
        shift = one.nats_per_token(differences)
        ppl = [torch.tensor(-one.nats_per_token(v)).exp().item() for v in (one.fp32, one.bf16)]
        lines.append(
            f"| {one.network} | {one.quantity} | {len(differences):,} | {typical:.4f} "
            f"| {differences.abs().max().item():.3f} | {shift:+.5f} +- {one.standard_error():.5f} "
            f"| {ppl[0]:.5g} | {ppl[1]:.5g} |"
        )
    return "\n".join(lines) + "\n"


def measure_all() -> list[Shift]:
    """Measure every network."""
    shifts = [shift for size in SEQUENCES for shift in demo_shifts(size)]
    shifts += published_shifts(FLAT, seed=0)
    for seed in range(3):
        shifts += published_shifts(SHARP, seed)
    return shifts


if __name__ == "__main__":
    run_as_command("precision", "What bfloat16 does to values.", lambda: render(measure_all()))
