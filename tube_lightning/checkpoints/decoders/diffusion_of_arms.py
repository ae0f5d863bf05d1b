"""DiffuLLaMA and DiffuGPT: Llama-2 and GPT-2 trained on, shifted, the whole sequence.

HKUNLP/DiffuLLaMA: the shift stays ("do not change this"), the first token is given. Their
config.json is that of the ARM they began as, so the user must name them. The mask ids of DiffuLLaMA
and DiffuGPT-s are ordinary tokens: texts that contain them cannot be scored; DiffuGPT-m's is one
that was added. The layout of their files was not verified here.
"""

from typing import Any

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import rename

DIFFULLAMA = DecoderFamily(
    name="diffullama",
    backbone="llama",
    context="none",
    block_size=None,
    mask_id=811,
    shift=True,
    first="given",
    look_alikes=("llama",),
    arms=("meta-llama/Llama-2-7b-hf",),
)

_GPT2_SIZES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}
_GPT2_SAME = (
    "vocab_size", "n_inner", "activation_function", "layer_norm_epsilon", "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
)  # fmt: skip


def _gpt2_settings(config: dict[str, Any]) -> dict[str, Any]:
    sizes = {new: config[old] for old, new in _GPT2_SIZES.items()}
    return sizes | {name: config[name] for name in _GPT2_SAME if name in config}


DIFFUGPT = DecoderFamily(
    name="diffugpt",
    backbone="gpt2",
    context="none",
    block_size=None,
    mask_id=10541,
    shift=True,
    first="given",
    look_alikes=("gpt2",),
    length_key="n_positions",
    settings=_gpt2_settings,
    translate=lambda config: rename(
        (r"denoise_model\.", "transformer."), (r"embed_tokens\.", "transformer.wte.")
    ),
    arms=("openai-community/gpt2", "openai-community/gpt2-medium"),
)
