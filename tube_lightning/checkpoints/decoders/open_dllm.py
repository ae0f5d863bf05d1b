"""Open-dLLM (open-dcoder): Qwen2, shifted, the whole sequence at its own length.

Open-dLLM: the output at a position predicts the next one. Its config.json is Qwen2's and its mask
token the tokenizer's, so the user must name both. The layout of its files was not verified here.
"""

from tube_lightning.checkpoints.decoders.family import DecoderFamily

OPEN_DLLM = DecoderFamily(
    name="open-dllm",
    backbone="qwen2",
    context="none",
    block_size=None,
    mask_id=None,
    shift=True,
    first="given",
    look_alikes=("qwen2",),
    arms=("Qwen/Qwen2.5-Coder-0.5B",),
)
