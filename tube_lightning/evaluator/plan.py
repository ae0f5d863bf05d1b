"""What is scored of each block: regimes, orderings, and whether every order is summed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.orderings import all_orderings, reveal_times
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import Regime

MAX_ENUMERATED_BANK = 4
"""Blocks up to this size have all their orderings in a bank: 24, as in the paper."""

DrawTimes = Callable[[Sequence[int], int], Float64[Tensor, "batch blocks orderings size"]]
"""Sequence ids and the number of blocks to reveal times; the batch is the sequences, or 1."""


@dataclass(frozen=True)
class Plan:
    """How blocks of one size are scored."""

    block_size: int
    regimes: tuple[Regime, ...]
    num_orderings: int
    draw_times: DrawTimes
    exact: bool
    """Sum over all orders: every set of the lattice goes through the network."""
    elbo_seeds: int = 0
    """Draws of the continuous-time ELBO, as the original code evaluates."""
    seed: int = 0

    @staticmethod
    def of(protocol: Protocol, block_size: int) -> "Plan":
        """Choose what a protocol scores of blocks of one size."""
        count = protocol.orderings_of(block_size)
        draw = bank_times if protocol.bank else fresh_times
        return Plan(
            block_size=block_size,
            regimes=protocol.regimes(block_size),
            num_orderings=count,
            draw_times=partial(draw, protocol.seed, count, block_size),
            exact=block_size <= protocol.exact_max_block_size,
            elbo_seeds=protocol.elbo_seeds,
            seed=protocol.seed,
        )

    @property
    def exact_regimes(self) -> tuple[Regime, ...]:
        """List the regimes whose recursion can take so large a block."""
        if not self.exact:
            return ()
        return tuple(r for r in self.regimes if self.block_size <= r.largest_exact_block)


def fresh_times(
    seed: int, num_orderings: int, size: int, sequences: Sequence[int], num_blocks: int
) -> Float64[Tensor, "batch blocks orderings size"]:
    """Draw orderings for each sequence and block: independent everywhere."""
    return reveal_times(seed, sequences, range(num_blocks), num_orderings=num_orderings, size=size)


def bank_times(
    seed: int, num_orderings: int, size: int, sequences: Sequence[int], num_blocks: int
) -> Float64[Tensor, "1 blocks orderings size"]:
    """Draw one bank of orderings and give it to every block.

    Where the bank can hold each ordering equally often, it does, with random times in that order.
    """
    del sequences
    bank = reveal_times(seed, [0], num_orderings=num_orderings, size=size)[0, 0]
    if size <= MAX_ENUMERATED_BANK:
        orders = all_orderings(size)
        if num_orderings % len(orders) == 0:
            ranks = orders.argsort(dim=-1).repeat(num_orderings // len(orders), 1)
            bank = bank.sort(dim=-1).values.gather(-1, ranks)
    return torch.broadcast_to(bank, (1, num_blocks, num_orderings, size))
