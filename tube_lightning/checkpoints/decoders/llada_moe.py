"""LLaDA-MoE-7B-A1B: Qwen3-MoE whose chosen experts are not renormalised, one block.

The hub's modeling_lladamoe.py: the code sets norm_topk_prob to false whatever config.json says; no
shared expert; full attention, no shift. ``model_type`` is LLaDA's: ``architectures`` decide.
"""

from typing import Any

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import stack_experts
from tube_lightning.checkpoints.decoders.settings import expect, rope

_SAME = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "max_position_embeddings", "rms_norm_eps", "hidden_act", "num_experts", "num_experts_per_tok",
)  # fmt: skip


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    expect(
        config,
        attention_bias=False,
        clip_qkv=None,
        qk_layernorm=True,
        moe_router_score_function="softmax",
        moe_router_enable_expert_bias=False,
        router_num_group=None,
        shared_expert_intermediate_size=None,
        moe_layer_freq=[1] * config["num_hidden_layers"],
        partial_rotary_factor=1,
        routed_scaling_factor=1,
    )
    return {
        **{name: config[name] for name in _SAME},
        "head_dim": config["hidden_size"] // config["num_attention_heads"],
        "intermediate_size": config["dense_intermediate_size"],
        "moe_intermediate_size": config["expert_intermediate_size"],
        "norm_topk_prob": False,
        **rope(config),
    }


LLADA_MOE = DecoderFamily(
    name="llada-moe",
    backbone="qwen3_moe",
    context="none",
    block_size=None,
    mask_id=156895,
    model_types=("llada",),
    architectures=("LLaDAMoEModelLM", "LLaDAMoEModel"),
    settings=_settings,
    translate=lambda config: stack_experts(config["expert_intermediate_size"]),
)
