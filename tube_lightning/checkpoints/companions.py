"""The ARMs that go with a block model."""

from typing import Any

from tube_lightning.checkpoints.checkpoint import Checkpoint

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

    "auto" is the embedded one for embedded models, and none for others; null and "none" are none.
    In which tokens and windows it reads is a matter of the text, and none of its files.
    """
    del tokenizer, length
    if checkpoint == "auto":
        checkpoint = EMBEDDED_ARMS.get(str(model), {}).get(name)
    if checkpoint is None or checkpoint == "none":
        return None
    return Checkpoint.of(checkpoint, {"plugin": model.plugin} | options)
