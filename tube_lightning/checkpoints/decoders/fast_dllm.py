"""Fast-dLLM v2: Qwen2.5 by blocks, shifted over their borders.

The hub's modeling.py (Efficient-Large-Model/Fast_dLLM_v2_7B): clean blocks see themselves and those
before; the output at a position predicts the next one; a block's first token is predicted by the
last clean position before it, and is revealed first. Sub-blocks of 8 restrict the authors' sampler
further; they are not modelled here.
"""

from tube_lightning.checkpoints.decoders.family import DecoderFamily

FAST_DLLM_V2 = DecoderFamily(
    name="fast-dllm-v2",
    backbone="qwen2",
    context="block",
    block_size=32,
    mask_id=151665,
    shift=True,
    first="previous",
    first_goes_first=True,
    model_types=("Fast_dLLM_Qwen",),
    architectures=("Fast_dLLM_QwenForCausalLM",),
    block_keys=("bd_size", "block_size"),
    arms=("Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
)
