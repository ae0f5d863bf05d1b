"""From a checkpoint's ``config.json`` to the family that reads it."""

import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePath

from tube_lightning.checkpoints.checkpoint import WHOLE, Checkpoint
from tube_lightning.checkpoints.decoders import DECODERS
from tube_lightning.checkpoints.dit_family import load_dit, read_dit_sizes
from tube_lightning.checkpoints.family import Family
from tube_lightning.checkpoints.plugins import import_plugin
from tube_lightning.checkpoints.published import MODEL_TYPES
from tube_lightning.checkpoints.radd import RADD
from tube_lightning.checkpoints.refused import refusal
from tube_lightning.checkpoints.sources import CONFIG_FILE, local_file
from tube_lightning.networks import TransformersARM

GROUP = "tube_lightning.families"
"""The group of entry points in which installed packages offer their families."""

DIT = Family("bd3lm", load_dit, read_dit_sizes, model_types=MODEL_TYPES)
BUILT_IN = (DIT, RADD, *(decoder.family() for decoder in DECODERS))


def find_family(checkpoint: Checkpoint) -> Family | None:
    """Return the family that reads a checkpoint; None if nobody knows it.

    The user's word comes first. Then the plugin's families, those of this package, and those that
    other installed packages offer. A training checkpoint is one of the original code.
    """
    own = _find_own(checkpoint.plugin)
    if checkpoint.family is not None:
        return _find_by_name(checkpoint.family, [*own, *BUILT_IN, *_find_installed()])
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
    known = [*_find_own(checkpoint.plugin), *BUILT_IN, *_find_installed()]
    kind, architectures = checkpoint.config.get("model_type"), _read_architectures(checkpoint)
    graph = "SEDD" if "graph" in checkpoint.config else None
    if reason := refusal(kind, *architectures, graph, PurePath(str(checkpoint)).name):
        raise ValueError(f"{checkpoint}: {reason}")
    types = " or ".join(dict.fromkeys(name for family in known for name in family.model_types))
    names = " or ".join(dict.fromkeys(name for family in known for name in family.architectures))
    alike = ", ".join(family.name for family in known if kind in family.look_alikes)
    hint = "a family of your own needs plugin=MODULE"
    if alike:
        hint = f"if it is one of {alike}, give family=NAME"
    if arms := [name for name in architectures if _is_causal_lm(name)]:
        raise ValueError(
            f"{checkpoint}: expected a diffusion model, got an autoregressive one of transformers "
            f"({arms[0]}): give it as arm.checkpoint (load_arm), and a block model as "
            f"model.checkpoint; {hint}"
        )
    raise ValueError(
        f"{checkpoint}: expected model_type {types}, or architectures {names}, in {CONFIG_FILE}, "
        f"got {kind!r} (load_arm reads any causal language model of transformers) with "
        f"architectures {architectures}; {hint}"
    )


def _find_by_name(name: str, known: Sequence[Family]) -> Family:
    """Return the family of a name, whatever its case and dashes."""
    wanted = _plain(name)
    for family in known:
        if _plain(family.name) == wanted:
            return family
    if reason := refusal(name):
        raise ValueError(f"family: {reason}")
    names = ", ".join(family.name for family in known)
    raise ValueError(f"family: expected one of {names}, got {name!r}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def load_causal_lm(checkpoint: Checkpoint) -> TransformersARM:
    """Load a causal language model of transformers, without remote code."""
    checkpoint.check_options("dtype")
    return TransformersARM.from_pretrained(
        checkpoint.source, dtype=checkpoint.torch_dtype, revision=checkpoint.revision
    )


def _is_causal_lm(architecture: object) -> bool:
    """Tell whether transformers itself has a causal language model of this name."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return architecture in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def _choose(families: Sequence[Family], checkpoint: Checkpoint) -> Family | None:
    """Return the one that names an architecture of the checkpoint, or its type, or recognises it.

    A plugin or package may name what another does: the first comes first. Of our own, a block size
    decides between the whole and blocks; else the user must.
    """
    architectures, config = _read_architectures(checkpoint), checkpoint.config
    model_type = config.get("model_type")
    by_architecture = [f for f in families if any(a in f.architectures for a in architectures)]
    by_type = [f for f in families if model_type in f.model_types]
    by_keys = [f for f in families if f.recognises is not None and f.recognises(config)]
    found = by_architecture or by_type or by_keys
    if len(found) > 1 and checkpoint.block_size is not None:
        found = [f for f in found if f.whole == (checkpoint.block_size == WHOLE)] or found
    if len(found) > 1 and families is BUILT_IN:
        names = ", ".join(family.name for family in found)
        raise ValueError(
            f"{checkpoint}: {CONFIG_FILE} does not tell which of {names} it is: give family=NAME"
        )
    return found[0] if found else None


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
