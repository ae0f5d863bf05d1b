"""LLaDA-8B and LLaDA 1.5: Llama under the names of OLMo, the whole sequence at its own length.

ML-GSAI/LLaDA and the hub's modeling_llada.py: full attention, no shift, no time, the mask's logit
not suppressed. ``model_type`` is LLaDA-MoE's too.
"""

from typing import Any

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import rename
from tube_lightning.checkpoints.decoders.settings import expect, rope

_BLOCK = r"model\.transformer\.blocks\.(\d+)\."
_NAMES = rename(
    (r"model\.transformer\.wte\.", "model.embed_tokens."),
    (r"model\.transformer\.ln_f\.", "model.norm."),
    (r"model\.transformer\.ff_out\.", "lm_head."),
    (_BLOCK + r"attn_norm\.", r"model.layers.\1.input_layernorm."),
    (_BLOCK + r"ff_norm\.", r"model.layers.\1.post_attention_layernorm."),
    (_BLOCK + r"attn_out\.", r"model.layers.\1.self_attn.o_proj."),
    (_BLOCK + r"([qkv])_proj\.", r"model.layers.\1.self_attn.\2_proj."),
    (_BLOCK + r"ff_proj\.", r"model.layers.\1.mlp.gate_proj."),
    (_BLOCK + r"up_proj\.", r"model.layers.\1.mlp.up_proj."),
    (_BLOCK + r"ff_out\.", r"model.layers.\1.mlp.down_proj."),
)


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    expect(
        config,
        block_type="llama",
        activation_type="silu",
        layer_norm_type="rms",
        rope=True,
        alibi=False,
        attention_layer_norm=False,
        bias_for_layer_norm=False,
        include_bias=False,
        include_qkv_bias=False,
        input_emb_norm=False,
        scale_logits=False,
        clip_qkv=None,
    )
    heads = config["n_heads"]
    return {
        "vocab_size": config.get("embedding_size") or config["vocab_size"],
        "hidden_size": config["d_model"],
        "intermediate_size": config["mlp_hidden_size"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": config.get("n_kv_heads") or heads,
        "max_position_embeddings": config["max_sequence_length"],
        "rms_norm_eps": config["rms_norm_eps"],
        **rope(config),
    }


LLADA = DecoderFamily(
    name="llada",
    backbone="llama",
    context="none",
    block_size=None,
    mask_id=126336,
    model_types=("llada",),
    architectures=("LLaDAModelLM",),
    length_key="max_sequence_length",
    settings=_settings,
    translate=lambda config: _NAMES,
)
