"""Load block models and ARMs from what their authors and our users have."""

from dataclasses import MISSING, fields
from typing import Any

import torch
from torch import Tensor

from tube_lightning.checkpoints.published import (
    BUFFERS,
    MODEL_TYPES,
    PREFIX,
    read_config,
    read_published,
)
from tube_lightning.checkpoints.sources import Source, local_file
from tube_lightning.checkpoints.training_checkpoint import read_training_checkpoint
from tube_lightning.networks import (
    AutoregressiveModel,
    BlockDiffusion,
    DiT,
    DiTARM,
    DiTConfig,
    TransformersARM,
)

_MAX_LISTED = 10


def load_block_model(
    source: Source,
    *,
    weights: str = "ema",
    block_size: int | None = None,
    n_heads: int | None = None,
    model_length: int | None = None,
    mask_id: int | None = None,
    dtype: torch.dtype = torch.float32,
    revision: str | None = None,
) -> BlockDiffusion:
    """Load a block model or a full-sequence masked diffusion model.

    ``source`` is a folder or hub id in the published layout, or a training checkpoint (``*.ckpt``)
    of the original code, of which ``weights`` are "ema" or "raw". The sizes are only needed for a
    training checkpoint that does not tell them; ``mask_id`` where the tokenizer brought its own
    mask token (103 for bert-base-uncased), else it is the last. The trunk's matmuls run in
    ``dtype``.
    """
    network = read_checkpoint(
        source,
        weights=weights,
        block_size=block_size,
        n_heads=n_heads,
        model_length=model_length,
        mask_id=mask_id,
        revision=revision,
    )
    if network.config.causal:
        raise ValueError(
            f"{source}: expected a diffusion model, got an autoregressive one: use load_arm"
        )
    return BlockDiffusion.from_network(network, dtype)


def load_arm(
    source: Source,
    *,
    weights: str = "ema",
    n_heads: int | None = None,
    model_length: int | None = None,
    mask_id: int | None = None,
    dtype: torch.dtype = torch.float32,
    revision: str | None = None,
) -> AutoregressiveModel:
    """Load an ARM: the AR baseline of BD3-LM and MDLM, or any causal LM of transformers.

    The arguments are those of ``load_block_model``. No remote code is run.
    """
    if local_file(source) is None:
        model_type = read_config(source, revision).get("model_type")
        if model_type not in MODEL_TYPES:
            if weights != "ema" or {n_heads, model_length, mask_id} != {None}:
                raise ValueError(
                    f"weights, n_heads, model_length, mask_id: expected none for {source}, "
                    f"a {model_type} of transformers"
                )
            return TransformersARM.from_pretrained(source, dtype=dtype, revision=revision)
    network = read_checkpoint(
        source,
        weights=weights,
        n_heads=n_heads,
        model_length=model_length,
        mask_id=mask_id,
        revision=revision,
    )
    config = network.config
    if not config.causal:
        raise ValueError(
            f"{source}: expected an autoregressive model, got a diffusion model with blocks of "
            f"{config.block_size}: use load_block_model"
        )
    return DiTARM.from_network(network, dtype)


def read_checkpoint(
    source: Source,
    *,
    weights: str = "ema",
    block_size: int | None = None,
    n_heads: int | None = None,
    model_length: int | None = None,
    mask_id: int | None = None,
    revision: str | None = None,
) -> DiT:
    """Read the parameters of a network, strictly: each tensor is there, and no other is.

    The arguments are those of ``load_block_model``.
    """
    path = local_file(source)
    if path is None:
        if weights != "ema":
            raise ValueError(f"weights: expected 'ema', got {weights!r}: {source} has no others")
        known, tensors = read_published(source, revision)
    else:
        known, tensors = read_training_checkpoint(path, weights)
    if known.pop("own_mask_token", None) and mask_id is None:
        raise ValueError(
            f"{source}: its tokenizer brought its own mask token, which no file tells: give "
            "mask_id=... (103 for bert-base-uncased)"
        )
    given = {
        "block_size": block_size,
        "n_heads": n_heads,
        "model_length": model_length,
        "mask_id": mask_id,
    }
    return _filled(source, _settled(source, known, given), tensors)


def _settled(source: Source, known: dict[str, Any], given: dict[str, int | None]) -> DiTConfig:
    """Settle the configuration: what the checkpoint tells, then what the caller does."""
    sizes: dict[str, Any] = {k: v for k, v in given.items() if v is not None} | known
    if sizes["causal"]:
        sizes = {"block_size": 1, "cross_attn": False} | sizes
    elif sizes.get("cross_attn") is False and "model_length" in sizes:
        # attention sees the whole sequence: it is one block, whatever the file says
        sizes["block_size"] = sizes["model_length"]
    required = [field.name for field in fields(DiTConfig) if field.default is MISSING]
    missing = [name for name in (*required, "n_heads") if name not in sizes]
    if missing:
        wanted = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(f"{source}: it does not tell {', '.join(missing)}: give {wanted}")
    for name, value in given.items():
        if value is not None and value != sizes[name]:
            raise ValueError(f"{source}: {name}: expected {sizes[name]} (its own), got {value}")
    for field in fields(DiTConfig):
        value = sizes.get(field.name, field.default)
        at_least = -sizes["vocab_size"] if field.name == "mask_id" else 1
        if field.type is int and (type(value) is not int or value < at_least):
            raise ValueError(f"{source}: {field.name}: expected a positive integer, got {value!r}")
        if field.type is bool and type(value) is not bool:
            raise ValueError(f"{source}: {field.name}: expected true or false, got {value!r}")
    sizes.setdefault("cross_attn", sizes["block_size"] < sizes["model_length"])
    try:
        return DiTConfig(**sizes)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _filled(source: Source, config: DiTConfig, tensors: dict[str, Tensor]) -> DiT:
    """Make a network of the tensors, or list all that do not fit it."""
    with torch.device("meta"):  # nothing to initialise, all is replaced
        network = DiT(config)
    expected = {f"{PREFIX}{name}": list(t.shape) for name, t in network.state_dict().items()}
    found = {name: list(t.shape) for name, t in tensors.items() if name not in BUFFERS}
    faults = [f"missing {name} {expected[name]}" for name in expected if name not in found]
    faults += [f"unexpected {name} {found[name]}" for name in found if name not in expected]
    faults += [
        f"{name}: expected {shape}, got {found[name]}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    if faults:
        lines = faults[:_MAX_LISTED]
        if len(faults) > _MAX_LISTED:
            lines.append(f"and {len(faults) - _MAX_LISTED} more")
        raise ValueError("\n  ".join([f"{source}: the tensors are not those of {config}:", *lines]))
    parameters = {name.removeprefix(PREFIX): tensors[name].float() for name in expected}
    network.load_state_dict(parameters, assign=True)
    return network
