"""From a checkpoint's ``config.json`` to the family that reads it."""

import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import chain

from tube_lightning.checkpoints.checkpoint import Checkpoint
from tube_lightning.checkpoints.dit_family import load_dit, read_dit_sizes
from tube_lightning.checkpoints.family import Family
from tube_lightning.checkpoints.plugins import import_plugin
from tube_lightning.checkpoints.published import MODEL_TYPES
from tube_lightning.checkpoints.sources import CONFIG_FILE, local_file
from tube_lightning.networks import TransformersARM

GROUP = "tube_lightning.families"
"""The group of entry points in which installed packages offer their families."""

DIT = Family("bd3lm", load_dit, read_dit_sizes, model_types=MODEL_TYPES)
BUILT_IN = (DIT,)


def find_family(checkpoint: Checkpoint) -> Family | None:
    """Return the family that reads a checkpoint; None if nobody knows it.

    The plugin's families come first, then those of this package, then those that other installed
    packages offer. A training checkpoint is one of the original code.
    """
    own = _find_own(checkpoint.plugin)
    if local_file(checkpoint.source) is not None:
        return DIT
    return (
        _choose(own, checkpoint)
        or _choose(BUILT_IN, checkpoint)
        or _choose(_find_installed(), checkpoint)
    )


def expect_family(checkpoint: Checkpoint) -> Family:
    """Return the family that reads a checkpoint, or say which there are."""
    family = find_family(checkpoint)
    if family is not None:
        return family
    if arms := [name for name in _read_architectures(checkpoint) if _is_causal_lm(str(name))]:
        raise ValueError(
            f"{checkpoint}: expected a diffusion model, got an autoregressive one of transformers "
            f"({arms[0]}): give it as arm.checkpoint (load_arm), and a block model as "
            "model.checkpoint"
        )
    known = [*_find_own(checkpoint.plugin), *BUILT_IN, *_find_installed()]
    types = " or ".join(name for family in known for name in family.model_types)
    architectures = " or ".join(name for family in known for name in family.architectures)
    also = f", or architectures {architectures}," if architectures else ""
    raise ValueError(
        f"{checkpoint}: expected model_type {types}{also} in {CONFIG_FILE}, got "
        f"{checkpoint.config.get('model_type')!r} (load_arm reads any causal language model of "
        f"transformers) with architectures {_read_architectures(checkpoint)}; a family of your own "
        "needs plugin=MODULE"
    )


def load_causal_lm(checkpoint: Checkpoint) -> TransformersARM:
    """Load a causal language model of transformers, without remote code."""
    checkpoint.check_options("dtype")
    return TransformersARM.from_pretrained(
        checkpoint.source, dtype=checkpoint.torch_dtype, revision=checkpoint.revision
    )


def _is_causal_lm(architecture: str) -> bool:
    return architecture.endswith(("ForCausalLM", "LMHeadModel"))


def _choose(families: Sequence[Family], checkpoint: Checkpoint) -> Family | None:
    """Return the first that names an architecture of the checkpoint, or else its type."""
    architectures = _read_architectures(checkpoint)
    model_type = checkpoint.config.get("model_type")
    by_architecture = (f for f in families if any(a in f.architectures for a in architectures))
    by_type = (f for f in families if model_type in f.model_types)
    return next(chain(by_architecture, by_type), None)


def _read_architectures(checkpoint: Checkpoint) -> list[object]:
    names = checkpoint.config.get("architectures")
    return names if isinstance(names, list) else []


def _find_own(plugin: str | None) -> list[Family]:
    """Return the families among the global names of a plugin."""
    if plugin is None:
        return []
    module = import_plugin(plugin)
    families = [value for value in vars(module).values() if isinstance(value, Family)]
    if not families:
        raise ValueError(f"plugin: expected a Family in {module}, found none")
    return families


def _find_installed() -> list[Family]:
    loaded = [_load_entry_point(entry) for entry in entry_points(group=GROUP)]
    return [family for family in loaded if family is not None]


def _load_entry_point(entry: EntryPoint) -> Family | None:
    """Load what another package offers; one that is broken is told, and no reason to stop."""
    try:
        family = entry.load()
    except Exception as error:  # code of another package: anything
        warnings.warn(
            f"{GROUP}: {entry.value} of an installed package does not load "
            f"({type(error).__name__}: {error})",
            stacklevel=2,
        )
        return None
    if not isinstance(family, Family):
        warnings.warn(f"{GROUP}: expected a Family in {entry.value}, got {family!r}", stacklevel=2)
        return None
    return family
