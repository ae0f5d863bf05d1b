"""Which models and texts go together."""

from collections.abc import Mapping

from tube_lightning.data import TokenSequences
from tube_lightning.networks import (
    AutoregressiveModel,
    BlockModel,
    check_tokens,
    check_vocabularies,
)


def check_models(network: object, arms: Mapping[str, object], text: TokenSequences) -> None:
    """Refuse what is no model, and models that cannot read the text."""
    if not isinstance(network, BlockModel):
        raise TypeError(f"model: expected a BlockModel, got {type(network).__name__}")
    check_tokens(
        text.tokens,
        vocab_size=network.vocab_size,
        max_length=network.max_length,
        mask_id=network.mask_id,
    )
    for name, arm in arms.items():
        if not isinstance(arm, AutoregressiveModel):
            raise TypeError(f"{name}: expected an AutoregressiveModel, got {type(arm).__name__}")
        check_vocabularies(network, arm)
        limit = getattr(arm, "max_length", None)
        if limit is not None and text.length > limit:
            raise ValueError(
                f"{name}: expected an ARM for sequences of {text.length} tokens, got one for at "
                f"most {limit}: give length=..."
            )
