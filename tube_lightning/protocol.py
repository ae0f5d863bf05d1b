"""The protocol: how blocks are scored, and what is made of the scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tube_lightning.checks import check_whole_number
from tube_lightning.regimes import LARGEST_LATTICE, Regime, list_regimes

Draws = Literal["fresh", "bank"]
"""Orderings drawn for each block, or one bank of them for all."""


@dataclass(frozen=True)
class Protocol:
    """The way to evaluate, whatever the model.

    By default orderings are drawn fresh for each sequence and block, and blocks of up to
    ``exact_max_block_size`` positions have all orders summed besides. ``bank`` draws orderings once
    for all blocks, ``num_reseeds`` resamples that bank in the report, and ``elbo_seeds`` estimates
    the ELBO in continuous time: together the paper's protocol. One bank cannot tell how lucky its
    draw was; ``num_banks`` of them can, each with so many orderings.
    """

    name: str = "default"
    num_orderings: int | None = None
    nfe: Sequence[int] | None = None
    chunks: Sequence[int] = ()
    exact_max_block_size: int = 8
    bank: bool = False
    num_banks: int = 1
    num_reseeds: int = 0
    elbo_seeds: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        least = {"num_reseeds": 0, "elbo_seeds": 0, "exact_max_block_size": 0, "seed": 0}
        least["num_banks"] = 1
        if self.num_orderings is not None:
            least["num_orderings"] = 1
        for name, smallest in least.items():
            check_whole_number(name, getattr(self, name), smallest)
        for name, steps in (("nfe", self.nfe or ()), ("chunks", self.chunks)):
            if not isinstance(steps, list | tuple):
                raise ValueError(f"{name}: expected a list of numbers of steps, got {steps!r}")
            for number in steps:
                check_whole_number(name, number, least=1)
        if self.exact_max_block_size > LARGEST_LATTICE:
            raise ValueError(
                f"exact_max_block_size: expected at most {LARGEST_LATTICE}, "
                f"got {self.exact_max_block_size}"
            )
        if self.num_reseeds and not self.bank:
            raise ValueError(f"num_reseeds: expected 0 without a bank, got {self.num_reseeds}")
        if self.num_banks > 1 and not self.bank:
            raise ValueError(f"num_banks: expected 1 without a bank, got {self.num_banks}")
        if self.bank and not self.num_reseeds:
            raise ValueError("num_reseeds: expected at least 1 re-seed of a bank, got 0")

    def regimes(self, block_size: int, *, first_first: bool = False) -> tuple[Regime, ...]:
        """List the regimes that blocks of one size are scored in."""
        return list_regimes(block_size, self.nfe, self.chunks, first_first=first_first)

    def orderings_of(self, block_size: int) -> int:
        """Count the sampled orderings of a block: by default 24, 64 or 128, as in the paper."""
        if self.num_orderings is not None:
            return self.num_orderings
        return 24 if block_size <= 4 else 64 if block_size <= 8 else 128

    @property
    def draws(self) -> Draws:
        """Tell what the report is of: orderings fresh for each block, or resamples of a bank."""
        return "bank" if self.bank else "fresh"
