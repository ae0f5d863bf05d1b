"""The family of BD3-LM, MDLM and their AR baseline: published folders and training checkpoints."""

from dataclasses import MISSING, fields
from typing import Any

import torch
from torch import Tensor

from tube_lightning.checkpoints.checkpoint import WHOLE, Checkpoint, Sizes
from tube_lightning.checkpoints.faults import list_faults
from tube_lightning.checkpoints.published import BUFFERS, PREFIX, read_published
from tube_lightning.checkpoints.sources import local_file
from tube_lightning.checkpoints.training_checkpoint import (
    read_training_checkpoint,
    training_checkpoint_sizes,
)
from tube_lightning.networks import BlockDiffusion, DiT, DiTARM, DiTConfig

_OPTIONS = ("block_size", "n_heads", "model_length", "mask_id")


def load_dit(checkpoint: Checkpoint) -> BlockDiffusion | DiTARM:
    """Load a network to evaluate it, with the trunk's matmuls in the checkpoint's ``dtype``."""
    network = read_network(checkpoint)
    kind = DiTARM if network.config.causal else BlockDiffusion
    return kind.from_network(network, checkpoint.torch_dtype)


def read_dit_sizes(checkpoint: Checkpoint) -> Sizes:
    """Read the sizes of a block model without the weights; refuse an ARM."""
    path = local_file(checkpoint.source)
    known = checkpoint.config if path is None else training_checkpoint_sizes(path)
    if known.get("causal"):
        raise ValueError(
            f"{checkpoint}: expected a diffusion model, got an autoregressive one: give it as "
            "arm.checkpoint (load_arm), and a block model as model.checkpoint"
        )
    return Sizes(known.get("vocab_size"), known.get("model_length") or checkpoint.model_length)


def read_network(checkpoint: Checkpoint) -> DiT:
    """Read the parameters of a network, strictly: each tensor is there, and no other is."""
    known, tensors = _read_files(checkpoint)
    if known.pop("own_mask_token", None) and checkpoint.mask_id is None:
        raise ValueError(
            f"{checkpoint}: its tokenizer brought its own mask token, which no file tells: give "
            "mask_id=... (103 for bert-base-uncased)"
        )
    return _fill_network(checkpoint, _settle_config(checkpoint, known), tensors)


def _read_files(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what the files tell of ``DiTConfig``, and the tensors by their published names."""
    weights, path = checkpoint.weights, local_file(checkpoint.source)
    if path is not None:
        return read_training_checkpoint(path, weights)
    if weights != "ema":
        raise ValueError(f"weights: expected 'ema', got {weights!r}: {checkpoint} has no others")
    return read_published(checkpoint)


def _settle_config(checkpoint: Checkpoint, known: dict[str, Any]) -> DiTConfig:
    """Settle the configuration: what the files tell, then what the caller does."""
    given = {name: getattr(checkpoint, name) for name in _OPTIONS}
    if given["block_size"] == WHOLE:
        given["block_size"] = known.get("model_length", given["model_length"])
    given = {name: value for name, value in given.items() if value is not None}
    sizes = given | known
    if sizes["causal"]:
        sizes = {"block_size": 1, "cross_attn": False} | sizes
    elif sizes.get("cross_attn") is False and "model_length" in sizes:
        # attention sees the whole sequence: it is one block, whatever the file says
        sizes["block_size"] = sizes["model_length"]
    _check_complete(checkpoint, sizes)
    _check_agreement(checkpoint, sizes, given)
    _check_types(checkpoint, sizes)
    sizes.setdefault("cross_attn", sizes["block_size"] < sizes["model_length"])
    try:
        return DiTConfig(**sizes)
    except ValueError as error:
        raise ValueError(f"{checkpoint}: {error}") from error


def _check_complete(checkpoint: Checkpoint, sizes: dict[str, Any]) -> None:
    """Ask for what neither the files nor the caller tell."""
    required = [field.name for field in fields(DiTConfig) if field.default is MISSING]
    missing = [name for name in (*required, "n_heads") if name not in sizes]
    if missing:
        wanted = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(f"{checkpoint}: it does not tell {', '.join(missing)}: give {wanted}")


def _check_agreement(checkpoint: Checkpoint, sizes: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse a caller who tells otherwise than the files."""
    for name, value in given.items():
        if value != sizes[name]:
            raise ValueError(f"{checkpoint}: {name}: expected {sizes[name]} (its own), got {value}")


def _check_types(checkpoint: Checkpoint, sizes: dict[str, Any]) -> None:
    """Refuse what a file can hold in place of a number or a flag."""
    for field in fields(DiTConfig):
        value = sizes.get(field.name, field.default)
        at_least = -sizes["vocab_size"] if field.name == "mask_id" else 1
        if field.type is int and (type(value) is not int or value < at_least):
            raise ValueError(
                f"{checkpoint}: {field.name}: expected a positive integer, got {value!r}"
            )
        if field.type is bool and type(value) is not bool:
            raise ValueError(f"{checkpoint}: {field.name}: expected true or false, got {value!r}")


def _fill_network(checkpoint: Checkpoint, config: DiTConfig, tensors: dict[str, Tensor]) -> DiT:
    """Make a network of the tensors, or list all that do not fit it."""
    with torch.device("meta"):  # nothing to initialise, all is replaced
        network = DiT(config)
    expected = {f"{PREFIX}{name}": list(t.shape) for name, t in network.state_dict().items()}
    found = {name: list(t.shape) for name, t in tensors.items() if name not in BUFFERS}
    if faults := list_faults(expected, found):
        title = f"{checkpoint}: the tensors are not those of {config}:"
        raise ValueError("\n  ".join([title, *faults]))
    # copies: where a file puts a tensor in memory would show in the last digits of products
    parameters = {n.removeprefix(PREFIX): tensors[n].to(torch.float32, copy=True) for n in expected}
    network.load_state_dict(parameters, assign=True)
    return network
