"""Nemotron-Labs-Diffusion: Ministral-3 by blocks behind a causal context, and its own ARM.

Megatron-Bridge, diffusion/common/dllm.py and dgpt_step.py: a noisy block sees itself and the clean
tokens before it, clean tokens those before them; the diffusion loss is unshifted, the ARM's loss on
the clean tokens shifted, with the same weights. So the network read causally is an exact ARM. The
hub's ``generate`` takes a block's first token from the ARM; vLLM's does not, and neither do we.
The layout of its files was not verified here.
"""

from typing import Any

from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.pieces import rename
from tube_lightning.checkpoints.decoders.settings import plain_settings


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """Say that queries are not scaled by position, where the file does not say how."""
    settings = plain_settings(config)
    length = config["max_position_embeddings"]
    unscaled = {"llama_4_scaling_beta": 0.0, "original_max_position_embeddings": length}
    if "rope_parameters" in settings:
        settings["rope_parameters"] = unscaled | settings["rope_parameters"]
    return settings


NEMOTRON = DecoderFamily(
    name="nemotron-labs-diffusion",
    backbone="ministral3",
    context="causal",
    block_size=32,
    mask_id=100,
    model_types=("nemotron_labs_diffusion",),
    architectures=("NemotronLabsDiffusionModel",),
    settings=_settings,
    translate=lambda config: rename((r"encoder\.", "model."), (r"diffusion_head\.", "lm_head.")),
    arms=("self",),
)
