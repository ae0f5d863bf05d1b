"""What a position of a block is to the likelihood: scored, given, absent or cut."""

from enum import IntEnum

import torch
from jaxtyping import Int64
from torch import Tensor


class Role(IntEnum):
    """How a position takes part: only scored ones are latent and counted."""

    SCORED = 0
    """Revealed in random order, counted."""
    GIVEN = 1
    """Always visible, not counted: a BOS token, a prompt."""
    ABSENT = 2
    """After the end of the sequence: always masked, not counted."""
    CUT = 3
    """After the end where the block ends as well: it does not exist, and nothing sees it."""


def block_roles(length: int, block_size: int, num_given: int = 1) -> Int64[Tensor, "blocks size"]:
    """Cut a sequence into blocks and say what each position is.

    The first ``num_given`` tokens are given (BD3-LM never masks token 0); positions after
    ``length`` in a ragged last block are absent.

    >>> block_roles(length=7, block_size=4).tolist()
    [[1, 0, 0, 0], [0, 0, 0, 2]]
    """
    if length < 1 or block_size < 1:
        raise ValueError(f"length, block_size: expected at least 1, got {length} and {block_size}")
    if not 0 <= num_given <= length:
        raise ValueError(f"num_given: expected 0 to {length} (the length), got {num_given}")
    num_blocks = -(-length // block_size)
    roles = torch.full((num_blocks * block_size,), Role.ABSENT.value)
    roles[:num_given] = Role.GIVEN
    roles[num_given:length] = Role.SCORED
    return roles.view(num_blocks, block_size)
