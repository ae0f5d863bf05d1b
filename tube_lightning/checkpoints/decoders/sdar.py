"""SDAR, TraDo and SDAR-MoE: Qwen3 by blocks.

JetAstra/SDAR, modeling_sdar.py and generate.py: clean blocks see themselves and those before; no
shift, no time, nothing suppressed; blocks are counted from position 0. Neither the block size nor
the mask id is in the published config.json; larger blocks have their size in the name only (-b8).
The mixture's tensor names are believed to be Qwen3-MoE's (lmdeploy, configurations/sdar.py).
"""

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import stack_experts

SDAR = DecoderFamily(
    name="sdar",
    backbone="qwen3",
    context="block",
    block_size=4,
    mask_id=151669,
    model_types=("sdar",),
    architectures=("SDARForCausalLM",),
    arms=("Qwen/Qwen3-1.7B-Base", "Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B-Base"),
)

SDAR_MOE = DecoderFamily(
    name="sdar-moe",
    backbone="qwen3_moe",
    context="block",
    block_size=4,
    mask_id=151669,
    model_types=("sdar_moe",),
    architectures=("SDARMoeForCausalLM",),
    translate=lambda config: stack_experts(config["moe_intermediate_size"]),
    arms=("Qwen/Qwen3-30B-A3B-Base",),
)
