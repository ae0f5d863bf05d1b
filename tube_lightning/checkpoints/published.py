"""The published layout of BD3-LM, MDLM and AR: ``config.json`` and ``model.safetensors``."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tube_lightning.checkpoints.checkpoint import Checkpoint
from tube_lightning.checkpoints.sources import CONFIG_FILE, Source
from tube_lightning.networks import ROTARY_BASE, DiT, DiTConfig
from tube_lightning.whole_files import finished_file, write_text

WEIGHTS_FILE = "model.safetensors"
MODEL_TYPES = ("bd3lm", "mdlm")
PREFIX = "backbone."
BUFFERS = (f"{PREFIX}rotary_emb.inv_freq", "sampling_eps_min", "sampling_eps_max")
"""Saved with the weights, but never read: some versions of the ecosystem zero ``inv_freq``."""

_STORED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_TRAINING_FIELDS = {"sampling_eps_min": 0.001, "sampling_eps_max": 0.999}


def read_published(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the known fields of ``DiTConfig``, and the tensors by their published names."""
    config = checkpoint.config
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"{checkpoint}: expected model_type {' or '.join(MODEL_TYPES)} in {CONFIG_FILE}, got "
            f"{model_type!r}"
        )
    if config.get("time_conditioning"):
        raise ValueError(
            f"{checkpoint}: time_conditioning: expected false, got true: not supported"
        )
    known: dict[str, Any] = {"adaln": True, "causal": False, "cross_attn": model_type == "bd3lm"}
    names = {field.name for field in fields(DiTConfig)}
    known |= {name: value for name, value in config.items() if name in names and value is not None}
    path = checkpoint.find_file(WEIGHTS_FILE)
    try:
        return known, load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file ({error})") from error


def _collect_tensors(network: DiT, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the parameters by their published names, and the buffers that belong to them."""
    config = network.config
    tensors = {
        f"{PREFIX}{name}": tensor.detach().to("cpu", dtype).contiguous()
        for name, tensor in network.state_dict().items()
    }
    for name, tensor in tensors.items():
        if dtype != torch.float32 and not tensor.isfinite().all():
            raise ValueError(f"{name}: expected finite weights in {dtype}, got others")
    width = config.hidden_dim // config.n_heads
    exponent = torch.arange(0, width, 2, dtype=torch.float32) / width
    tensors[BUFFERS[0]] = 1 / ROTARY_BASE**exponent
    if config.cross_attn:
        tensors |= {name: torch.tensor(value) for name, value in _TRAINING_FIELDS.items()}
    return tensors


def save_checkpoint(folder: Source, network: DiT, dtype: torch.dtype = torch.float32) -> None:
    """Write a network in the published layout; a reader never sees a half-written file.

    ``dtype`` is how the weights are stored; they are always read as fp32. float16 halves the file
    and keeps 11 significant bits, three more than bfloat16: trained weights are far from its
    limits, and those that are not are refused. The demo checkpoints fit into the package so.
    """
    if dtype not in _STORED_DTYPES:
        raise ValueError(
            f"dtype: expected one of {', '.join(map(str, _STORED_DTYPES))}, got {dtype}"
        )
    tensors = _collect_tensors(network, dtype)
    folder = Path(folder)
    config = asdict(network.config) | _TRAINING_FIELDS
    config |= {"model_type": "bd3lm", "architectures": ["BD3LM"]}
    config |= {"dtype": str(dtype).removeprefix("torch.")}
    config |= {"attn_backend": "sdpa", "time_conditioning": False, "return_dict": False}
    config |= {"var_min": network.config.cross_attn}
    if network.config.mask_id == network.config.vocab_size - 1:
        del config["mask_id"]  # the published files do not name the last token
    with finished_file(folder / WEIGHTS_FILE) as unfinished:
        unfinished.write_bytes(save(tensors, metadata={"format": "pt"}))
    write_text(folder / CONFIG_FILE, json.dumps(config, indent=2, sort_keys=True) + "\n")
