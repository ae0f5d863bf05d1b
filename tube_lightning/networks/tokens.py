"""What every model asks of the tokens it is given."""

from typing import Any

import torch
from torch import Tensor

from tube_lightning.networks.protocols import AutoregressiveModel, BlockModel


def _refuse_first(bad: Tensor, tokens: Tensor, expected: str) -> None:
    """Raise on the first token that is marked as bad."""
    if bad.any():
        sequence, position = bad.nonzero()[0].tolist()
        value = tokens[sequence, position].item()
        raise ValueError(
            f"tokens: expected {expected}, got {value} "
            f"in sequence {sequence} at position {position}"
        )


def check_tokens(
    tokens: Tensor, *, vocab_size: int, max_length: int | None, mask_id: int | None = None
) -> None:
    """Refuse tokens that a model cannot read, naming the sequence and position.

    The shape is checked here and not by its annotation, so that users get this message as well.
    Without ``max_length`` any length will do; without ``mask_id`` every id is data.

    >>> check_tokens(torch.tensor([[3, 9]]), vocab_size=9, max_length=4)
    Traceback (most recent call last):
    ValueError: tokens: expected ids in 0..8, got 9 in sequence 0 at position 1
    """
    if tokens.dtype != torch.int64 or tokens.ndim != 2:
        shape = tuple(tokens.shape)
        raise ValueError(f"tokens: expected int64 [batch, length], got {tokens.dtype} {shape}")
    if tokens.numel() == 0:
        raise ValueError(f"tokens: expected at least one token, got shape {tuple(tokens.shape)}")
    length = tokens.shape[1]
    if max_length is not None and length > max_length:
        raise ValueError(f"tokens: expected at most {max_length} per sequence, got {length}")
    outside = (tokens < 0) | (tokens >= vocab_size)
    hidden = torch.zeros_like(outside) if mask_id is None else tokens == mask_id
    if (outside | hidden).any():  # asked once: a device is waited for
        _refuse_first(outside, tokens, f"ids in 0..{vocab_size - 1}")
        _refuse_first(hidden, tokens, f"data without the mask id {mask_id}")


def check_vocabularies(block_model: BlockModel[Any], arm: AutoregressiveModel) -> None:
    """Refuse an ARM of another tokenizer; its vocabulary may do without the mask token."""
    size = block_model.vocab_size
    if arm.vocab_size not in (size - 1, size):
        raise ValueError(
            f"arm: expected a vocabulary of {size - 1} tokens like the block model's, or of {size} "
            f"with its mask token, got {arm.vocab_size}: give its tokenizer (arm.tokenizer=), and "
            "the two are compared per byte"
        )
