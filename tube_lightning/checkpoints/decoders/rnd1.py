"""RND1-Base: Qwen3-MoE, shifted, the whole sequence at its own length.

RND1, rnd/sampling.py: the output at a position predicts the next one. Tensor names are believed to
be Qwen3-MoE's; the layout of its files was not verified here.
"""

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import stack_experts

RND1 = DecoderFamily(
    name="rnd1",
    backbone="qwen3_moe",
    context="none",
    block_size=None,
    mask_id=151669,
    shift=True,
    first="given",
    model_types=("rnd1",),
    architectures=("RND1LM",),
    translate=lambda config: stack_experts(config["moe_intermediate_size"]),
    arms=("Qwen/Qwen3-30B-A3B-Base",),
)
