"""Dream, Dream-Coder and DiffuCoder: Qwen2, shifted, the whole sequence at its own length.

DreamLM/Dream, eval/eval.py and the hub's modeling_dream.py: the output at a position predicts the
next one, full attention, and the first token is never masked ("bos always unmask").
"""

from tube_lightning.checkpoints.decoders.family import DecoderFamily

DREAM = DecoderFamily(
    name="dream",
    backbone="qwen2",
    context="none",
    block_size=None,
    mask_id=151666,
    shift=True,
    first="given",
    model_types=("Dream",),
    architectures=("DreamModel",),
    arms=("Qwen/Qwen2.5-7B",),
)
