"""What is scored of each block: regimes, orderings, and whether every order is summed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.checks import check_whole_number
from tube_lightning.lattice.exact import MAX_CHUNK_SIZE, MAX_GROUP_SIZE
from tube_lightning.orderings import EqualChunks, Steps, all_orderings, reveal_times

ANY_ORDER = "ao_arm"
MAX_ENUMERATED_BANK = 4
"""Blocks up to this size have all their orderings in a bank: 24, as in the paper."""

Draws = Callable[[Sequence[int], int], Float64[Tensor, "batch blocks orderings size"]]
"""Sequence ids and the number of blocks to reveal times; the batch is the sequences, or 1."""


@dataclass(frozen=True)
class Plan:
    """How blocks of one size are scored."""

    block_size: int
    regimes: Mapping[str, Steps]
    num_orderings: int
    draws: Draws
    exact: bool
    """Sum over all orders: every set of the lattice goes through the network."""
    elbo_seeds: int = 0
    """Draws of the continuous-time ELBO, as the original code evaluates."""
    seed: int = 0
    exact_regimes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the regimes whose recursion can take so large a block."""
        names = [
            name
            for name, steps in self.regimes.items()
            if self.block_size <= (MAX_GROUP_SIZE if isinstance(steps, int) else MAX_CHUNK_SIZE)
        ]
        object.__setattr__(self, "exact_regimes", tuple(names) if self.exact else ())


def default_num_orderings(block_size: int) -> int:
    """Return the paper's numbers: 24 for blocks of 4, 64 for 8, 128 for 16."""
    return 24 if block_size <= 4 else 64 if block_size <= 8 else 128


def named_regimes(
    block_size: int, nfe: Sequence[int] | None = None, chunks: Sequence[int] = ()
) -> dict[str, Steps]:
    """Name the regimes: T steps (default: 1, 2, 4, ... the block), any order, equal chunks.

    >>> list(named_regimes(4, chunks=[2]))
    ['nfe_1', 'nfe_2', 'nfe_4', 'ao_arm', 'chunks_2']
    """
    if nfe is None:
        nfe = [1 << power for power in range((block_size - 1).bit_length() + 1)]
        nfe = [min(steps, block_size) for steps in nfe]
    regimes: dict[str, Steps] = {f"nfe_{steps}": steps for steps in nfe}
    regimes[ANY_ORDER] = None
    return regimes | {f"chunks_{steps}": EqualChunks(steps) for steps in chunks}


@dataclass(frozen=True)
class Protocol:
    """The way to evaluate, whatever the model: what its blocks' size leaves open becomes a plan.

    By default orderings are drawn fresh for each sequence and block, and blocks of up to
    ``exact_max_block_size`` positions have all orders summed besides. ``bank`` draws orderings once
    for all blocks, ``num_reseeds`` resamples that bank in the report, and ``elbo_seeds`` estimates
    the ELBO in continuous time: together the paper's protocol.
    """

    name: str = "default"
    num_orderings: int | None = None
    nfe: Sequence[int] | None = None
    chunks: Sequence[int] = ()
    exact_max_block_size: int = 8
    bank: bool = False
    num_reseeds: int = 0
    elbo_seeds: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        least = {"num_reseeds": 0, "elbo_seeds": 0, "exact_max_block_size": 0, "seed": 0}
        if self.num_orderings is not None:
            least["num_orderings"] = 1
        for name, smallest in least.items():
            check_whole_number(name, getattr(self, name), smallest)
        for name, steps in (("nfe", self.nfe or ()), ("chunks", self.chunks)):
            if not isinstance(steps, list | tuple):
                raise ValueError(f"{name}: expected a list of numbers of steps, got {steps!r}")
            for number in steps:
                check_whole_number(name, number, least=1)
        if self.exact_max_block_size > MAX_CHUNK_SIZE:
            raise ValueError(
                f"exact_max_block_size: expected at most {MAX_CHUNK_SIZE}, "
                f"got {self.exact_max_block_size}"
            )
        if self.num_reseeds and not self.bank:
            raise ValueError(f"num_reseeds: expected 0 without a bank, got {self.num_reseeds}")

    def plan(self, block_size: int) -> Plan:
        """Choose what is scored of blocks of one size."""
        default = default_num_orderings(block_size)
        count = default if self.num_orderings is None else self.num_orderings
        draws = bank_times if self.bank else fresh_times
        return Plan(
            block_size=block_size,
            regimes=named_regimes(block_size, self.nfe, self.chunks),
            num_orderings=count,
            draws=partial(draws, self.seed, count, block_size),
            exact=block_size <= self.exact_max_block_size,
            elbo_seeds=self.elbo_seeds,
            seed=self.seed,
        )


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
