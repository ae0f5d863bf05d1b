"""RADD: a masked diffusion model without a time input, on the trunk that BD3-LM has.

ML-GSAI/RADD, model/transformer.py: layer norms with biases, no modulation; the mask is the last
token and has no probability; trained at one length, which it keeps. ``config.json`` is what the
hub's mixin writes, without a model type: its keys tell.
"""

from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tube_lightning.checkpoints.checkpoint import WHOLE, Checkpoint, Sizes
from tube_lightning.checkpoints.family import Family
from tube_lightning.checkpoints.faults import list_faults
from tube_lightning.checkpoints.published import WEIGHTS_FILE
from tube_lightning.networks import MLP_RATIO, BlockDiffusion, DiTConfig, Layer, Trunk

_NEVER_READ = "rotary_emb.inv_freq"


def recognise_radd(config: dict[str, Any]) -> bool:
    """Tell RADD by its keys: a transformer without time."""
    model = config.get("model")
    return isinstance(model, dict) and model.get("type") == "ddit_wot" and "tokens" in config


def load_radd(checkpoint: Checkpoint) -> BlockDiffusion:
    """Load a checkpoint, strictly: each tensor is there, and no other is."""
    checkpoint.check_options("dtype", "block_size", "mask_id")
    config = _read_config(checkpoint)
    tensors = load_file(checkpoint.find_file(WEIGHTS_FILE))
    tensors.pop(_NEVER_READ, None)
    found = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if faults := list_faults(_expected_shapes(config), found):
        title = f"{checkpoint}: the tensors are not those of {config}:"
        raise ValueError("\n  ".join([title, *faults]))
    return BlockDiffusion(config, _make_trunk(config, tensors).freeze(checkpoint.torch_dtype))


def read_radd_sizes(checkpoint: Checkpoint) -> Sizes:
    """Read the sizes without the weights."""
    config = _read_config(checkpoint)
    return Sizes(config.vocab_size, config.model_length)


def _read_config(checkpoint: Checkpoint) -> DiTConfig:
    model, tokens = checkpoint.config["model"], checkpoint.config["tokens"]
    if checkpoint.block_size not in (None, WHOLE, model["length"]):
        raise ValueError(
            f"{checkpoint}: block_size: expected {model['length']} (its own length), "
            f"got {checkpoint.block_size}"
        )
    if checkpoint.mask_id not in (None, tokens):
        raise ValueError(
            f"{checkpoint}: mask_id: expected {tokens} (its own), got {checkpoint.mask_id}"
        )
    return DiTConfig(
        vocab_size=tokens + 1,
        model_length=model["length"],
        block_size=model["length"],
        hidden_dim=model["hidden_size"],
        n_blocks=model["n_blocks"],
        n_heads=model["n_heads"],
        adaln=False,
        cross_attn=False,
        mask_id=tokens,
    )


def _expected_shapes(config: DiTConfig) -> dict[str, list[int]]:
    dim, vocab, inner = config.hidden_dim, config.vocab_size, MLP_RATIO * config.hidden_dim
    shapes = {
        "vocab_embed.embedding": [vocab, dim],
        "output_layer.norm_final.weight": [dim],
        "output_layer.norm_final.bias": [dim],
        "output_layer.linear.weight": [vocab, dim],
        "output_layer.linear.bias": [vocab],
    }
    block = {
        "norm1.weight": [dim], "norm1.bias": [dim], "norm2.weight": [dim], "norm2.bias": [dim],
        "attn_qkv.weight": [3 * dim, dim], "attn_out.weight": [dim, dim],
        "mlp.0.weight": [inner, dim], "mlp.0.bias": [inner],
        "mlp.2.weight": [dim, inner], "mlp.2.bias": [dim],
    }  # fmt: skip
    for number in range(config.n_blocks):
        shapes |= {f"blocks.{number}.{name}": shape for name, shape in block.items()}
    return shapes


def _make_trunk(config: DiTConfig, tensors: dict[str, Tensor]) -> Trunk:
    def pair(name: str) -> tuple[Tensor, Tensor]:
        return tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    weight, bias = pair("output_layer.linear")
    return Trunk(
        embedding=tensors["vocab_embed.embedding"],
        layers=tuple(
            Layer(
                norm1=pair(f"blocks.{number}.norm1"),
                qkv=tensors[f"blocks.{number}.attn_qkv.weight"],
                out=tensors[f"blocks.{number}.attn_out.weight"],
                norm2=pair(f"blocks.{number}.norm2"),
                mlp_in=pair(f"blocks.{number}.mlp.0"),
                mlp_out=pair(f"blocks.{number}.mlp.2"),
                n_heads=config.n_heads,
            )
            for number in range(config.n_blocks)
        ),
        norm_final=pair("output_layer.norm_final"),
        head=(weight, bias.index_fill(0, torch.tensor([config.mask_id]), -torch.inf)),
        n_heads=config.n_heads,
    )


RADD = Family("radd", load_radd, read_radd_sizes, recognises=recognise_radd, whole=True)
