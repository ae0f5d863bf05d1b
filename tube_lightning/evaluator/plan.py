"""What is scored of each block: regimes, orderings, and whether every order is summed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.orderings import all_orderings, reveal_times
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import Regime

MAX_ENUMERATED_BANK = 4
"""Blocks up to this size have all their orderings in a bank: 24, as in the paper."""


@dataclass(frozen=True)
class Plan:
    """How a protocol scores blocks of one size.

    ``first_first`` constrains all orderings to begin with the first position. ``most_scored`` is
    the largest number of scored positions of a block, where it is known to be below its size: by it
    the lattice is judged.
    """

    protocol: Protocol
    block_size: int
    first_first: bool = False
    most_scored: int | None = None

    def __post_init__(self) -> None:
        """Refuse an estimator whose sets no constrained order has."""
        if self.first_first and self.protocol.elbo_seeds:
            raise ValueError(
                f"elbo_seeds: expected 0 for a model whose blocks begin with their first token, "
                f"got {self.protocol.elbo_seeds}"
            )

    @property
    def regimes(self) -> tuple[Regime, ...]:
        """List the regimes."""
        return self.protocol.regimes(self.block_size, first_first=self.first_first)

    @property
    def num_orderings(self) -> int:
        """Count the sampled orderings of a block: of each bank, if there are several."""
        return self.protocol.orderings_of(self.block_size)

    @property
    def exact(self) -> bool:
        """Tell whether all orders are summed: every set of the lattice goes through the network."""
        return self.lattice_size <= self.protocol.exact_max_block_size

    @property
    def lattice_size(self) -> int:
        """Count the positions over whose sets the lattice of the largest block goes."""
        return self.block_size if self.most_scored is None else self.most_scored

    @property
    def exact_regimes(self) -> tuple[Regime, ...]:
        """List the regimes whose recursion can take so large a block."""
        if not self.exact:
            return ()
        return tuple(r for r in self.regimes if self.lattice_size <= r.largest_exact_block)

    @property
    def most_sets(self) -> int:
        """Count the revealed sets of a block, at most: of T steps they are among an ordering's."""
        if self.exact:
            return (1 << self.lattice_size) - 1
        drawn = self.num_orderings * self.protocol.num_banks + 1  # one from left to right
        return drawn * self.block_size + self.protocol.elbo_seeds

    def draw_times(
        self, sequences: Sequence[int], num_blocks: int
    ) -> Float64[Tensor, "batch blocks orderings size"]:
        """Draw the reveal times of some sequences; the batch is the sequences, or 1 for banks.

        Banks stand one after the other on the axis of the orderings.
        """
        protocol, number, size = self.protocol, self.num_orderings, self.block_size
        if not protocol.bank:
            return fresh_times(protocol.seed, number, size, sequences, num_blocks)
        banks = [bank_times(protocol.seed, b, number, size) for b in range(protocol.num_banks)]
        shape = (1, num_blocks, number * len(banks), size)
        return torch.broadcast_to(torch.cat(banks), shape)

    def identity(self) -> dict[str, Any]:
        """Return all that scores depend on, by the names of the settings."""
        return {
            "num_orderings": self.num_orderings,
            "regimes": [regime.name for regime in self.regimes],
            "exact": self.exact,
            "bank": self.protocol.bank,
            "num_banks": self.protocol.num_banks,
            "elbo_seeds": self.protocol.elbo_seeds,
            "seed": self.protocol.seed,
        }


def fresh_times(
    seed: int, num_orderings: int, size: int, sequences: Sequence[int], num_blocks: int
) -> Float64[Tensor, "batch blocks orderings size"]:
    """Draw orderings for each sequence and block: independent everywhere."""
    return reveal_times(seed, sequences, range(num_blocks), num_orderings=num_orderings, size=size)


def bank_times(
    seed: int, number: int, num_orderings: int, size: int
) -> Float64[Tensor, "orderings size"]:
    """Draw one of the banks of orderings that every block has.

    Where the bank can hold each ordering equally often, it does, with random times in that order.
    """
    bank = reveal_times(seed, [number], num_orderings=num_orderings, size=size)[0, 0]
    if size <= MAX_ENUMERATED_BANK:
        orders = all_orderings(size)
        if num_orderings % len(orders) == 0:
            ranks = orders.argsort(dim=-1).repeat(num_orderings // len(orders), 1)
            bank = bank.sort(dim=-1).values.gather(-1, ranks)
    return bank
