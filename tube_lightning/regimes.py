"""Regimes: the ways to reveal a block, with their names in files and their titles in tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LARGEST_LATTICE = 16
"""Positions of the largest block whose orders are summed: 65,535 sets go through the network."""
_LARGEST_GROUPED = 14
"""Positions where steps reveal groups of any size: the sum is over all subsets of all sets."""


@dataclass(frozen=True)
class EqualChunks:
    """Reveal in ``number`` chunks of equal size, as deployed samplers do.

    Where the number of positions is no multiple, the first chunks take one position more.
    """

    number: int

    def __post_init__(self) -> None:
        """Refuse a number of chunks that reveals nothing."""
        if self.number < 1:
            raise ValueError(f"EqualChunks: expected at least 1, got {self.number}")

    def sizes(self, num_positions: int) -> tuple[int, ...]:
        """Return the sizes of the chunks that are not empty.

        >>> EqualChunks(2).sizes(5)
        (3, 2)
        """
        small, extra = divmod(num_positions, self.number)
        return tuple(s for i in range(self.number) if (s := small + (i < extra)))


Steps = int | EqualChunks | None
"""How a block is cut into steps: None = any-order ARM, one position a step; T = T-step MDM, every
position draws its step iid and uniformly; ``EqualChunks(T)`` = a random ordering cut into T chunks.
"""


@dataclass(frozen=True)
class Regime:
    """One way to reveal a block.

    >>> [(regime.name, regime.title) for regime in (Regime(), Regime(4), Regime(EqualChunks(2)))]
    [('ao_arm', 'AO-ARM'), ('nfe_4', 'NFE = 4'), ('chunks_2', '2 chunks')]
    """

    steps: Steps = None

    @property
    def name(self) -> str:
        """Name it in files: ao_arm, nfe_T or chunks_T."""
        match self.steps:
            case None:
                return "ao_arm"
            case EqualChunks(number):
                return f"chunks_{number}"
            case number:
                return f"nfe_{number}"

    @property
    def title(self) -> str:
        """Write it as the paper does."""
        match self.steps:
            case None:
                return "AO-ARM"
            case EqualChunks(number):
                return f"{number} chunks"
            case number:
                return f"NFE = {number}"

    @property
    def is_random(self) -> bool:
        """Tell whether orderings matter: a single step reveals all at once."""
        return self.steps not in (1, EqualChunks(1))

    @property
    def largest_exact_block(self) -> int:
        """Return the size of the largest block whose orders the lattice sums in this regime."""
        return _LARGEST_GROUPED if isinstance(self.steps, int) else LARGEST_LATTICE

    @staticmethod
    def parse(name: str) -> "Regime":
        """Read a name back.

        >>> Regime.parse("chunks_2")
        Regime(steps=EqualChunks(number=2))
        """
        kind, _, number = name.rpartition("_")
        if name == ANY_ORDER.name:
            return ANY_ORDER
        if kind in ("nfe", "chunks") and number.isdecimal() and int(number) > 0:
            return Regime(int(number) if kind == "nfe" else EqualChunks(int(number)))
        raise ValueError(f"regime: expected {ANY_ORDER.name}, nfe_T or chunks_T, got {name!r}")


ANY_ORDER = Regime()


def list_regimes(
    block_size: int, nfe: Sequence[int] | None = None, chunks: Sequence[int] = ()
) -> tuple[Regime, ...]:
    """List the regimes of a block: T steps (default: 1, 2, 4, ... its size), any order, chunks.

    >>> [regime.name for regime in list_regimes(4, chunks=[2])]
    ['nfe_1', 'nfe_2', 'nfe_4', 'ao_arm', 'chunks_2']
    """
    if nfe is None:
        powers = [1 << power for power in range((block_size - 1).bit_length() + 1)]
        nfe = [min(steps, block_size) for steps in powers]
    steps: list[Steps] = [*nfe, None, *map(EqualChunks, chunks)]
    return tuple(map(Regime, dict.fromkeys(steps)))


def headline(names: Iterable[str]) -> str:
    """Choose the regime that a summary is about, of those that are there: any order, or the first.

    >>> headline(["nfe_2", "ao_arm"]), headline(["nfe_2", "nfe_4"])
    ('ao_arm', 'nfe_2')
    """
    there = list(names)
    return ANY_ORDER.name if ANY_ORDER.name in there else there[0]
