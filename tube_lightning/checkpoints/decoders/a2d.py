"""dllm's A2D: Qwen3, Qwen2.5 and Llama made diffusion models, by blocks or as a whole.

ZHZisZZ/dllm, pipelines/a2d and core/trainers/bd3lm.py: the network and mask of SDAR, or full
attention. config.json tells neither which, nor the block size, nor the mask id: the next id after
the tokenizer's (151669 of Qwen3, 151665 of Qwen2.5: believed). The sampler aligns blocks to the end
of the prompt; here they are counted from position 0.
"""

from dataclasses import replace

from tube_lightning.checkpoints.decoders.family import DecoderFamily

A2D_BD3LM = DecoderFamily(
    name="a2d-bd3lm",
    backbone={"a2d-qwen3": "qwen3", "a2d-qwen2": "qwen2", "a2d-llama": "llama"},
    context="block",
    block_size=32,
    mask_id={"a2d-qwen3": 151669, "a2d-qwen2": 151665},
    model_types=("a2d-qwen3", "a2d-qwen2", "a2d-llama"),
    architectures=("A2DQwen3LMHeadModel", "A2DQwen2LMHeadModel", "A2DLlamaLMHeadModel"),
    arms=("Qwen/Qwen3-0.6B-Base", "Qwen/Qwen2.5-0.5B"),
)

A2D_MDLM = replace(A2D_BD3LM, name="a2d-mdlm", context="none", block_size=None)
