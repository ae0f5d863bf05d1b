"""Training checkpoints (``*.ckpt``): of the code bases of BD3-LM and MDLM, and of train.py."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tube_lightning.checkpoints.own_states import is_own_state, own_config, own_tensors
from tube_lightning.checkpoints.published import BUFFERS, PREFIX
from tube_lightning.checkpoints.torch_archive import StoredTensor, open_archive

_INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")


def read_training_checkpoint(path: Path, weights: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what can be known of ``DiTConfig``, and the tensors by their published names.

    ``weights`` is "ema" (what the original evaluates) or "raw". Nothing of the file is executed.
    """
    if weights not in ("ema", "raw"):
        raise ValueError(f"weights: expected 'ema' or 'raw', got {weights!r}")
    with open_archive(path) as archive:
        known, stored = _describe(path, archive.content)
        if is_own_state(archive.content):
            stored = _name_tensors(path, own_tensors(archive.content, weights))
        elif weights == "ema":
            stored = _name_averages(path, stored, archive.content.get("ema"))
        # copies, as no two parameters may share memory
        contiguous = torch.contiguous_format
        return known, {n: t.read().clone(memory_format=contiguous) for n, t in stored.items()}


def training_checkpoint_sizes(path: Path) -> dict[str, Any]:
    """Read what can be known of ``DiTConfig``, without the weights."""
    with open_archive(path) as archive:
        return _describe(path, archive.content)[0]


def _describe(path: Path, content: Any) -> tuple[dict[str, Any], dict[str, StoredTensor]]:  # noqa: ANN401
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), dict):
        raise ValueError(f"{path}: expected a training checkpoint with a state_dict, found none")
    if is_own_state(content):
        return own_config(path, content), {}
    stored = _name_tensors(path, content["state_dict"])
    known = _infer_sizes(path, stored)
    hyper_parameters = content.get("hyper_parameters")
    if isinstance(hyper_parameters, dict):
        known |= _read_options(path, hyper_parameters.get("config"))
    return known, stored


def _name_tensors(path: Path, state_dict: dict[Any, Any]) -> dict[str, StoredTensor]:
    """Drop what ``torch.compile`` put into the names."""
    for name, tensor in state_dict.items():
        if not isinstance(tensor, StoredTensor):
            raise ValueError(
                f"{path}: {name}: expected a dense tensor that fits its storage, got {tensor!r}"
            )
    return {str(name).replace("_orig_mod.", ""): tensor for name, tensor in state_dict.items()}


def _name_averages(
    path: Path, raw: dict[str, StoredTensor], ema: object
) -> dict[str, StoredTensor]:
    """Name the averaged weights: a list without names, in the order of the raw parameters."""
    averages = ema.get("shadow_params") if isinstance(ema, dict) else None
    if not isinstance(averages, list):
        raise ValueError(f"{path}: it has no EMA weights; weights='raw' reads the others")
    names = [name for name in raw if name not in BUFFERS]
    if len(averages) != len(names):
        raise ValueError(
            f"{path}: expected one EMA tensor for each of {len(names)} parameters, "
            f"got {len(averages)}; weights='raw' reads the others"
        )
    return _name_tensors(path, dict(zip(names, averages, strict=True)))


def _infer_sizes(path: Path, tensors: dict[str, StoredTensor]) -> dict[str, Any]:
    """Infer sizes; without modulation it is the AR network, which has no noise level."""
    embedding = tensors.get(f"{PREFIX}vocab_embed.embedding")
    if embedding is None or len(embedding.shape) != 2:
        some = ", ".join(list(tensors)[:3])
        raise ValueError(
            f"{path}: expected the network of BD3-LM, with a {PREFIX}vocab_embed.embedding "
            f"[vocab, dim]; found {len(tensors)} other tensors ({some} ...)"
        )
    blocks = {name.split(".")[2] for name in tensors if name.startswith(f"{PREFIX}blocks.")}
    known: dict[str, Any] = {"n_blocks": len(blocks)}
    known["vocab_size"], known["hidden_dim"] = embedding.shape
    modulation = tensors.get(f"{PREFIX}output_layer.adaLN_modulation.weight")
    known["adaln"] = modulation is not None
    known["causal"] = modulation is None
    if modulation is not None:
        known["cond_dim"] = modulation.shape[-1]
    return known


def _read_options(path: Path, config: object) -> dict[str, Any]:
    """Read the options of either code base: BD3-LM's are in ``algo``, MDLM's at the top."""

    def option(*names: str) -> Any:  # noqa: ANN401
        return next((v for name in names if (v := _look_up(config, name)) is not None), None)

    algorithm, backbone = option("algo.name"), option("algo.backbone", "backbone")
    parameterization = option("algo.parameterization", "parameterization")
    if parameterization not in (None, "subs", "ar"):
        raise ValueError(f"{path}: parameterization: expected subs or ar, got {parameterization!r}")
    if option("algo.time_conditioning", "time_conditioning"):
        raise ValueError(f"{path}: time_conditioning: expected false, got true: not supported")
    sizes = {
        "hidden_dim": option("model.hidden_size"),
        "cond_dim": option("model.cond_dim"),
        "n_blocks": option("model.n_blocks"),
        "n_heads": option("model.n_heads"),
        "model_length": option("model.length"),
        "block_size": option("block_size", "algo.block_size", "model.block_size"),
    }
    # an expression that we do not evaluate is as good as absent
    known: dict[str, Any] = {n: value for n, value in sizes.items() if isinstance(value, int)}
    tokenizer = option("data.tokenizer_name_or_path")
    if isinstance(tokenizer, str) and "bert" in tokenizer.lower():
        known["own_mask_token"] = True
    if isinstance(dropout := option("model.dropout"), int | float):
        known["dropout"] = dropout
    if "ar" in (algorithm, parameterization, backbone):
        return known | {"causal": True, "cross_attn": False}
    if algorithm is None and parameterization is None:
        return known
    cross_attn = option("algo.cross_attn", "model.cross_attn")
    known["cross_attn"] = algorithm == "bd3lm" if cross_attn is None else cross_attn
    return known | {"causal": False, "adaln": True}  # whatever model.adaln says


def _look_up(config: object, name: str) -> Any:  # noqa: ANN401
    """Look up "a.b", following one plain reference like ``${model.length}``."""
    value = config
    for _ in range(2):
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        reference = _INTERPOLATION.fullmatch(value) if isinstance(value, str) else None
        if reference is None:
            return value
        value, name = config, reference[1]
    return None
