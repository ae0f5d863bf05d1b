"""What the engine asks of a block model besides its protocol; most models have none of it."""

from typing import Any

from tube_lightning.networks.protocols import BlockModel


def size_of_blocks(model: BlockModel[Any], length: int) -> int:
    """Return the number of positions of a block in sequences of some length.

    A model with a true attribute ``own_length`` is one block that ends where the sequence does; any
    other has blocks of one size, and a sequence that ends inside of one is filled up.
    """
    return length if getattr(model, "own_length", False) else model.block_size


def num_unpredicted(model: BlockModel[Any]) -> int:
    """Return how many tokens at the beginning of a sequence nobody predicts: one, or none.

    A model with a true attribute ``first_is_given`` predicts every token but the first.
    """
    return int(getattr(model, "first_is_given", False))


def goes_first(model: BlockModel[Any]) -> bool:
    """Tell whether a model is meant for orders that begin with the first token of a block.

    Such a model has a true attribute ``first_goes_first``.
    """
    return bool(getattr(model, "first_goes_first", False))
