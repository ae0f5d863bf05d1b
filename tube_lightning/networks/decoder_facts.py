"""What distinguishes the families of diffusion decoders: facts, not code."""

from dataclasses import dataclass
from typing import Literal

Context = Literal["none", "block", "causal"]
"""What a clean token sees: there are none; its own block and those before; the tokens before."""
First = Literal["own", "given", "previous"]
"""Who predicts a block's first token: its own position as all others' do, nobody (it must be
given), or the last clean position before the block."""


@dataclass(frozen=True)
class DecoderFacts:
    """How a decoder of transformers is read as a block model.

    ``block_size`` None is the whole sequence, at its own length: such a model has no clean context.
    With ``shift`` the output at a position predicts the next one. ``first_goes_first`` restricts
    the orders of a block to those that begin with its first token. ``suppressed`` ids have no
    probability; the mask token has one unless it is among them.
    """

    mask_id: int
    max_length: int
    block_size: int | None
    context: Context
    shift: bool = False
    first: First = "own"
    first_goes_first: bool = False
    suppressed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse facts that contradict each other."""
        if (self.block_size is None) != (self.context == "none"):
            raise ValueError(
                f"context: expected 'none' for the whole sequence and only for it, got "
                f"{self.context!r} with block_size={self.block_size}"
            )
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"block_size: expected at least 1, got {self.block_size}")
        if self.block_size is not None and self.block_size > self.max_length:
            raise ValueError(
                f"block_size: expected at most {self.max_length} (the longest sequence), got "
                f"{self.block_size}"
            )
        if self.shift and self.first == "own":
            raise ValueError("first: expected 'given' or 'previous' with a shift, got 'own'")
        if self.first == "previous" and self.block_size is None:
            raise ValueError("first: expected a block before for 'previous', got the whole")
