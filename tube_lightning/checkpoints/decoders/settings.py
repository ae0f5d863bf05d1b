"""From an old ``config.json`` to the arguments of transformers' configurations of today."""

from collections.abc import Mapping
from typing import Any

_NOT_OURS = frozenset(
    (
        "architectures", "auto_map", "model_type", "dtype", "torch_dtype", "transformers_version",
        "use_cache", "tie_word_embeddings", "layer_types", "sliding_window", "use_sliding_window",
        "max_window_layers", "rope_theta", "rope_scaling", "partial_rotary_factor",
    )
)  # fmt: skip
"""What is the file's own business, or is said in another way."""


def plain_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Keep the fields as they are, with the rotation said as transformers says it today."""
    if config.get("use_sliding_window"):
        raise ValueError("use_sliding_window: expected false: every token sees all of its context")
    settings = {name: value for name, value in config.items() if name not in _NOT_OURS}
    return settings | {"vocab_size": config["vocab_size"]} | rope(config)


def rope(config: Mapping[str, Any], **more: float) -> dict[str, Any]:
    """Say the rotation of queries and keys; an empty dictionary where a file does not."""
    told = config.get("rope_parameters") or {}
    if "rope_theta" in config:
        told = {"rope_theta": config["rope_theta"], **told}
    scaling = dict(config.get("rope_scaling") or {})
    if "type" in scaling:
        scaling["rope_type"] = scaling.pop("type")
    if not told and not scaling:
        return {}
    return {"rope_parameters": {"rope_type": "default", **told, **scaling, **more}}


def expect(config: Mapping[str, Any], **values: object) -> None:
    """Refuse a network that differs in a switch from the one that is known; absent ones pass."""
    for name, value in values.items():
        if name in config and config[name] != value:
            raise ValueError(f"{name}: expected {value!r}, got {config[name]!r}: not supported")
