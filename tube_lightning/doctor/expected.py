"""What the paper's OpenWebText experiments would take here: arithmetic, from the measured rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tube_lightning.doctor.speed import PUBLISHED, NetworkSpeed, linear_flop
from tube_lightning.evaluator import Plan
from tube_lightning.orderings import Role, distinct_sets, left_to_right_times, reveal_steps
from tube_lightning.protocol import Protocol
from tube_lightning.scoring import default_token_budget

NUM_ORDERINGS = {"owt_l4": 24, "owt_l8": 64, "owt_l16": 128}
BLOCK_SIZES = {"owt_l4": 4, "owt_l8": 8, "owt_l16": 16}
BATCH_SIZE, NUM_BATCHES, LENGTH = 16, 100, 1024
"""As configs/experiment/owt_l4.yaml has them, which is not there where this is installed."""
_ITEM_BYTES = {"float32": 4, "bfloat16": 2}
_BYTES_AN_ENTRY = 20
"""Of the table of a batch: float64 twice, and which positions are revealed and needed."""


@dataclass(frozen=True)
class Expectation:
    """One experiment on one device: expected, not measured."""

    experiment: str
    dtype: str
    rows_a_block: int
    flop: int
    seconds: float
    memory_bytes: int


def paper_protocol(experiment: str) -> Protocol:
    """Return the protocol of an experiment, as its file has it."""
    orderings = NUM_ORDERINGS[experiment]
    return Protocol("paper", orderings, bank=True, num_reseeds=10, elbo_seeds=15)


def expect(speeds: Sequence[NetworkSpeed], device: torch.device) -> list[Expectation]:
    """Divide each experiment's operations by the rate of the network of the published size."""
    published = [speed for speed in speeds if speed.network == "published size"]
    return [
        _expect_one(name, speed, default_token_budget(device))
        for speed in published
        for name in BLOCK_SIZES
    ]


def _expect_one(experiment: str, speed: NetworkSpeed, token_budget: int) -> Expectation:
    size = BLOCK_SIZES[experiment]
    rows, needed = count_rows(experiment)
    num_tokens = BATCH_SIZE * NUM_BATCHES * LENGTH
    blocks = num_tokens // size
    config = replace(PUBLISHED, block_size=size)
    flop = linear_flop(config, num_tokens, blocks * rows * size, blocks * needed)
    flop += linear_flop(config, 0, num_tokens, num_tokens)  # the ARM
    return Expectation(
        experiment,
        speed.dtype,
        rows,
        flop,
        flop / speed.flop_per_second,
        _expect_memory(rows * BATCH_SIZE * LENGTH, speed.dtype, token_budget),
    )


def count_rows(experiment: str) -> tuple[int, int]:
    """Count the revealed sets of a block, and the positions that they need.

    Where orders are sampled the sets are those of the experiment's own bank of orderings, which all
    blocks share; the continuous-time ELBO adds one set a seed, half of it hidden on average.
    """
    plan = Plan(paper_protocol(experiment), BLOCK_SIZES[experiment])
    size = plan.block_size
    if plan.exact:
        return 2**size - 1, size * 2 ** (size - 1)
    roles = torch.full((1, 1, size), Role.SCORED.value)
    times = torch.cat([plan.draw_times([0], 1)[0], left_to_right_times(roles)], dim=1)
    sets = distinct_sets(*(reveal_steps(times, regime.steps) for regime in plan.regimes))
    seeds = plan.protocol.elbo_seeds
    return len(sets.block) + seeds, int(sets.needed.sum()) + seeds * size // 2


def _expect_memory(entries: int, dtype: str, token_budget: int) -> int:
    """Add up what is there at once: two networks, clean keys and values, a micro-batch, a table.

    A token of the micro-batch holds its stream twice, the normed one, and the MLP's four times
    wider layer before and after the GELU. Attention's own is not counted.
    """
    dim, layers, width = PUBLISHED.hidden_dim, PUBLISHED.n_blocks, _ITEM_BYTES[dtype]
    network = layers * 12 * dim**2 * width + 2 * PUBLISHED.vocab_size * dim * 4
    sequences = min(BATCH_SIZE, max(1, token_budget // LENGTH))
    clean = sequences * LENGTH * layers * 2 * dim * width
    micro_batch = max(token_budget, LENGTH) * dim * (2 * 4 + 9 * width)
    return 2 * network + clean + micro_batch + entries * _BYTES_AN_ENTRY
