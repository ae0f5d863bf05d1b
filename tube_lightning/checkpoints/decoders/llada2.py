"""LLaDA2.0, 2.1 and 2.2, mini and flash: GLM-4-MoE under the names of Ling, by blocks.

inclusionAI's modeling_llada2_moe.py and dFactory: queries, keys and values in one tensor, experts
one by one, a sigmoid router in fp32 with a bias of its own; clean blocks see themselves and those
before, no shift. Block size and mask id are defaults of ``generate``, not in config.json; its
sliding_window is ignored by the authors' attention too. LLaDA2.1 and 2.2 also edit revealed tokens:
the number is of the any-order model, not of that sampler.
"""

import re
from collections.abc import Sequence
from typing import Any

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import Piece, Translate, rename, stack_experts
from tube_lightning.checkpoints.decoders.settings import expect, rope

_FUSED = re.compile(r"(model\.layers\.\d+)\.attention\.query_key_value\.(weight|bias)")
_LAYER = r"(model\.layers\.\d+)\."
_NAMES = rename(
    (r"model\.word_embeddings\.", "model.embed_tokens."),
    (_LAYER + r"attention\.dense\.", r"\1.self_attn.o_proj."),
    (_LAYER + r"attention\.query_layernorm\.", r"\1.self_attn.q_norm."),
    (_LAYER + r"attention\.key_layernorm\.", r"\1.self_attn.k_norm."),
    (_LAYER + r"mlp\.gate\.expert_bias", r"\1.mlp.gate.e_score_correction_bias"),
)
_SAME = (
    "vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
    "rms_norm_eps", "hidden_act", "num_experts_per_tok", "n_group", "topk_group",
    "routed_scaling_factor", "first_k_dense_replace", "norm_topk_prob",
)  # fmt: skip


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    expect(
        config,
        score_function="sigmoid",
        moe_router_enable_expert_bias=True,
        use_qk_norm=True,
        use_bias=False,
        use_rmsnorm=True,
        norm_head=False,
        norm_softmax=False,
        using_split_qkv_in_self_attention=False,
    )
    partial = config.get("partial_rotary_factor", 1.0)
    return {
        **{name: config[name] for name in _SAME if name in config},
        "n_routed_experts": config["num_experts"],
        "n_shared_experts": config["num_shared_experts"],
        "attention_bias": bool(config.get("use_qkv_bias")),
        "use_qk_norm": True,
        "num_mtp_layers": 0,
        **rope(config, partial_rotary_factor=partial),
    }


def _translate(config: dict[str, Any]) -> Translate:
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    ends = [heads * width, (heads + key_heads) * width, (heads + 2 * key_heads) * width]

    def split(name: str) -> Sequence[Piece]:
        found = _FUSED.fullmatch(name)
        if found is None:
            return _NAMES(name)
        rows = (slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False))
        return [
            Piece(f"{found[1]}.self_attn.{kind}_proj.{found[2]}", some)
            for kind, some in zip("qkv", rows, strict=True)
        ]

    return stack_experts(config["moe_intermediate_size"], split)


LLADA2 = DecoderFamily(
    name="llada2",
    backbone="glm4_moe",
    context="block",
    block_size=32,
    mask_id=156895,
    model_types=("llada2_moe",),
    architectures=("LLaDA2MoeModelLM",),
    settings=_settings,
    translate=_translate,
)
