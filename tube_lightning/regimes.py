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


@dataclass(frozen=True)
class FirstFirst:
    """Reveal the first position of a block alone, then the others as ``rest`` says.

    Uniform over the orders that begin so: a constraint on the orderings, for models whose blocks
    are entered by their first token. A first position that is not scored constrains nothing.
    """

    rest: int | EqualChunks | None = None


Steps = int | EqualChunks | FirstFirst | None
"""How a block is cut into steps: None = any-order ARM, one position a step; T = T-step MDM, every
position draws its step iid and uniformly; ``EqualChunks(T)`` = a random ordering cut into T chunks;
``FirstFirst`` = one of these behind the first position.
"""
_FIRST = "_first"


@dataclass(frozen=True)
class Regime:
    """One way to reveal a block.

    >>> [(regime.name, regime.title) for regime in (Regime(), Regime(4), Regime(EqualChunks(2)))]
    [('ao_arm', 'AO-ARM'), ('nfe_4', 'NFE = 4'), ('chunks_2', '2 chunks')]
    >>> Regime(FirstFirst(4)).name, Regime(FirstFirst(4)).title
    ('nfe_4_first', 'NFE = 4, first first')
    """

    steps: Steps = None

    @property
    def name(self) -> str:
        """Name it in files: ao_arm, nfe_T or chunks_T, with _first if that is constrained."""
        match self.steps:
            case FirstFirst(rest):
                return Regime(rest).name + _FIRST
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
            case FirstFirst(rest):
                return f"{Regime(rest).title}, first first"
            case None:
                return "AO-ARM"
            case EqualChunks(number):
                return f"{number} chunks"
            case number:
                return f"NFE = {number}"

    @property
    def is_random(self) -> bool:
        """Tell whether orderings matter: a single step reveals all at once."""
        return self.unconstrained.steps not in (1, EqualChunks(1))

    @property
    def unconstrained(self) -> "Regime":
        """Return it without a constraint on its orderings."""
        return Regime(self.steps.rest) if isinstance(self.steps, FirstFirst) else self

    @property
    def largest_exact_block(self) -> int:
        """Return the size of the largest block whose orders the lattice sums in this regime."""
        steps = self.unconstrained.steps
        return _LARGEST_GROUPED if isinstance(steps, int) else LARGEST_LATTICE

    @staticmethod
    def parse(name: str) -> "Regime":
        """Read a name back.

        >>> Regime.parse("chunks_2")
        Regime(steps=EqualChunks(number=2))
        """
        if name.endswith(_FIRST):
            rest = Regime.parse(name.removesuffix(_FIRST)).steps
            if not isinstance(rest, FirstFirst):
                return Regime(FirstFirst(rest))
        kind, _, number = name.rpartition("_")
        if name == ANY_ORDER.name:
            return ANY_ORDER
        if kind in ("nfe", "chunks") and number.isdecimal() and int(number) > 0:
            return Regime(int(number) if kind == "nfe" else EqualChunks(int(number)))
        raise ValueError(f"regime: expected {ANY_ORDER.name}, nfe_T or chunks_T, got {name!r}")


ANY_ORDER = Regime()


def list_regimes(
    block_size: int,
    nfe: Sequence[int] | None = None,
    chunks: Sequence[int] = (),
    *,
    first_first: bool = False,
) -> tuple[Regime, ...]:
    """List the regimes of a block: T steps (default: 1, 2, 4, ... its size), any order, chunks.

    ``first_first`` constrains them all to begin with the first position.

    >>> [regime.name for regime in list_regimes(4, chunks=[2])]
    ['nfe_1', 'nfe_2', 'nfe_4', 'ao_arm', 'chunks_2']
    """
    if nfe is None:
        powers = [1 << power for power in range((block_size - 1).bit_length() + 1)]
        nfe = [min(steps, block_size) for steps in powers]
    steps = dict.fromkeys([*nfe, None, *map(EqualChunks, chunks)])
    return tuple(Regime(FirstFirst(rest) if first_first else rest) for rest in steps)


def headline(names: Iterable[str]) -> str:
    """Choose the regime that a summary is about, of those that are there: any order, or the first.

    >>> headline(["nfe_2", "ao_arm"]), headline(["nfe_2", "nfe_4"])
    ('ao_arm', 'nfe_2')
    """
    there = list(names)
    any_order = (ANY_ORDER.name, ANY_ORDER.name + _FIRST)
    return next((name for name in any_order if name in there), there[0])
