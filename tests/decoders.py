"""Tiny random checkpoints of diffusion decoders, in the layouts of their families."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB, MASK = 64, 61
FIXTURES = Path(__file__).parent / "fixtures" / "families"
GOLDEN = {  # folder -> what config.json does not tell
    "sdar": {"mask_id": MASK},
    "llada": {},
    "dream": {},
    "llada_moe": {"mask_id": MASK},
    "llada2_moe": {"mask_id": MASK, "block_size": 4},
    "a2d_qwen3_mdlm": {"mask_id": MASK, "family": "a2d-mdlm"},
    "fast_dllm_v2": {"mask_id": MASK},
    "radd": {},
}
_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_HEAD = {"head_dim": 16}
_MOE = {
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
_LLAMA = _SIZES | {"rope_theta": 10000.0}
_QWEN3 = _LLAMA | _HEAD
_GPT2 = {"vocab_size": VOCAB, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}

# name -> (backbone, what its config.json says, prefixes of its tensors, options of its loader)
LAYOUTS = {
    "sdar-moe": (
        "qwen3_moe",
        {"model_type": "sdar_moe", "architectures": ["SDARMoeForCausalLM"]} | _QWEN3 | _MOE,
        {},
        {"mask_id": MASK},
    ),
    "a2d-bd3lm": (
        "qwen3",
        {"model_type": "a2d-qwen3", "architectures": ["A2DQwen3LMHeadModel"]} | _QWEN3,
        {},
        {"mask_id": MASK, "family": "a2d-bd3lm", "block_size": 8},
    ),
    "a2d-llama": (
        "llama",
        {"model_type": "a2d-llama", "architectures": ["A2DLlamaLMHeadModel"]} | _LLAMA,
        {},
        {"mask_id": MASK, "family": "a2d-mdlm"},
    ),
    "a2d-qwen2": (
        "qwen2",
        {"model_type": "a2d-qwen2", "architectures": ["A2DQwen2LMHeadModel"]} | _LLAMA,
        {},
        {"mask_id": MASK, "block_size": 8},
    ),
    "nemotron": (
        "ministral3",
        {
            "model_type": "nemotron_labs_diffusion",
            "architectures": ["NemotronLabsDiffusionModel"],
            "block_size": 8,
            "mask_token_id": MASK,
            "rope_parameters": _YARN,
        }
        | _SIZES
        | _HEAD,
        {"model.": "encoder.", "lm_head.": "diffusion_head."},
        {},
    ),
    "rnd1": (
        "qwen3_moe",
        {"model_type": "rnd1", "architectures": ["RND1LM"]} | _QWEN3 | _MOE,
        {},
        {"mask_id": MASK},
    ),
    "diffullama": (
        "llama",
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | _LLAMA,
        {},
        {"mask_id": MASK, "family": "diffullama"},
    ),
    "diffugpt": (
        "gpt2",
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]} | _GPT2,
        {"transformer.wte.": "embed_tokens.", "transformer.": "denoise_model."},
        {"mask_id": MASK, "family": "diffugpt"},
    ),
    "open-dllm": (
        "qwen2",
        {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]} | _LLAMA,
        {},
        {"mask_id": MASK, "family": "open-dllm"},
    ),
    "dream-coder": (
        "qwen2",
        {"model_type": "Dream", "architectures": ["DreamModel"], "mask_token_id": MASK} | _LLAMA,
        {},
        {},
    ),
}  # fmt: skip


def reference(name, seed=0):
    """The network of transformers with random weights, every parameter of them."""
    backbone, config, _, _ = LAYOUTS[name]
    config = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    theta = config.pop("rope_theta", None)
    if theta is not None:
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    if backbone == "gpt2":
        config |= {"n_ctx": 64}
    config = AutoConfig.for_model(backbone, **config, tie_word_embeddings=False)
    network = AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return network


def layout_tensors(name, network):
    """The tensors under the family's names, experts one by one."""
    _, _, prefixes, _ = LAYOUTS[name]
    tensors = {}
    for key, value in network.state_dict().items():
        if ".experts." in key:
            tensors |= _split_experts(key, value)
            continue
        for ours, theirs in prefixes.items():
            if key.startswith(ours):
                key = theirs + key.removeprefix(ours)
                break
        tensors[key] = value.clone().contiguous()
    return tensors


def _split_experts(key, value):
    experts, kind = key.rsplit(".", 1)
    split = {}
    for number, expert in enumerate(value):
        if kind == "down_proj":
            split[f"{experts}.{number}.down_proj.weight"] = expert.clone()
        else:
            gate, up = expert.chunk(2)
            split[f"{experts}.{number}.gate_proj.weight"] = gate.clone()
            split[f"{experts}.{number}.up_proj.weight"] = up.clone()
    return split


def save_layout(name, folder, network=None):
    """Write a checkpoint as the family's are believed to be; return the options of its loader."""
    network = reference(name) if network is None else network
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LAYOUTS[name][1]))
    save_file(layout_tensors(name, network), folder / "model.safetensors")
    return LAYOUTS[name][3]


def random_ids(batch, length, seed=0):
    """Data: no mask token among it."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 58, (batch, length), generator=generator)
