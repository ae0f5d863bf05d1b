"""What the paper's OpenWebText experiments would take here: arithmetic, from the measured rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tube_lightning.doctor.speed import PUBLISHED, NetworkSpeed, linear_flop
from tube_lightning.evaluator import Plan
from tube_lightning.memory import HEAD_BYTES, Footprint, choose_budget, network_footprint
from tube_lightning.orderings import Role, distinct_sets, left_to_right_times, reveal_steps
from tube_lightning.protocol import Protocol

NUM_ORDERINGS = {"owt_l4": 24, "owt_l8": 64, "owt_l16": 128}
BLOCK_SIZES = {"owt_l4": 4, "owt_l8": 8, "owt_l16": 16}
BATCH_SIZE, NUM_BATCHES, LENGTH = 16, 100, 1024
"""As configs/experiment/owt_l4.yaml has them, which is not there where this is installed."""


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
    return [_expect_one(name, speed, device) for speed in published for name in BLOCK_SIZES]


def _expect_one(experiment: str, speed: NetworkSpeed, device: torch.device) -> Expectation:
    size = BLOCK_SIZES[experiment]
    rows, needed = count_rows(experiment)
    num_tokens = BATCH_SIZE * NUM_BATCHES * LENGTH
    blocks = num_tokens // size
    config = replace(PUBLISHED, block_size=size)
    flop = linear_flop(config, num_tokens, blocks * rows * size, blocks * needed)
    flop += linear_flop(config, 0, num_tokens, num_tokens)  # the ARM
    network, entries = published_footprint(speed.dtype), rows * BATCH_SIZE * LENGTH
    memory = network.peak(
        choose_budget(device, network, network.weights, entries),
        length=LENGTH,
        batch_size=BATCH_SIZE,
        beside=network.weights,
        num_entries=entries,
        head=0 if device.type == "cpu" else HEAD_BYTES,
    )
    seconds = flop / speed.flop_per_second
    return Expectation(experiment, speed.dtype, rows, flop, seconds, memory.total)


def published_footprint(dtype: str) -> Footprint:
    """Return the bytes of a network of the published size; the ARM beside it has as many."""
    dim, layers = PUBLISHED.hidden_dim, PUBLISHED.n_blocks
    return network_footprint(layers, dim, PUBLISHED.vocab_size, getattr(torch, dtype))


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
