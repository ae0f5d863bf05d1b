"""The ARMs that go with a block model."""

from typing import Any

from tube_lightning.checkpoints.checkpoint import Checkpoint
from tube_lightning.checkpoints.families import find_family
from tube_lightning.checkpoints.loading import load_arm
from tube_lightning.networks import AutoregressiveModel, BlockModel, DecoderARM, DecoderBlockModel

SELF = "self"
"""The ARM that is the block model itself, read from left to right."""
EMBEDDED_ARMS = {
    "demo:bd3lm_l4": {"arm": "demo:arm", "arm_ft": "demo:arm_ft_l4"},
    "demo:bd3lm_l8": {"arm": "demo:arm"},
    "demo:bd3lm_l16": {"arm": "demo:arm"},
}


def companion(
    name: str,
    model: Checkpoint,
    checkpoint: str | None,
    *,
    tokenizer: str | None = None,
    length: int | None = None,
    **options: Any,  # noqa: ANN401 (the fields of ``Checkpoint``)
) -> Checkpoint | None:
    """Name the "arm" or "arm_ft" that goes with a model; it has the model's plugin if none else.

    "auto" is the embedded one for embedded models, and none for others; null and "none" are none;
    "self" is the model itself, where it can be read from left to right. In which tokens and windows
    it reads is a matter of the text, and none of its files.
    """
    del tokenizer, length
    if checkpoint == "auto":
        checkpoint = EMBEDDED_ARMS.get(str(model), {}).get(name)
    if checkpoint is None or checkpoint == "none":
        return None
    return Checkpoint.of(checkpoint, {"plugin": model.plugin} | options)


def load_companion(checkpoint: Checkpoint, model: BlockModel[Any]) -> AutoregressiveModel:
    """Load the ARM that goes with a model; "self" shares its weights."""
    if str(checkpoint) != SELF:
        return load_arm(checkpoint)
    if not isinstance(model, DecoderBlockModel):
        raise ValueError(
            f"arm: expected a checkpoint, got {SELF!r}: {type(model).__name__} cannot be read from "
            "left to right"
        )
    return DecoderARM(model)


def suggest_arms(model: Checkpoint) -> str | None:
    """Name ARMs of a model's tokenizer, where its family knows some."""
    family = find_family(model)
    if family is None or not family.arms:
        return None
    return f"no ARM to compare with: try arm.checkpoint={' or '.join(family.arms)}"
