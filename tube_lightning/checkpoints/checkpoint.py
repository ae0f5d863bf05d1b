"""A checkpoint as users name it: where a model is, and what its files may not tell."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tube_lightning.checkpoints.folders import find_model
from tube_lightning.checkpoints.sources import Source, find_file, read_config
from tube_lightning.demo import demo_checkpoint

_DEMO = "demo:"
WHOLE = "whole"
"""The block size of models whose block is the whole sequence, at its own length."""
_EVERYBODYS = ("revision", "plugin", "family", "check")
"""Options that mean the same whatever the family."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Sizes(NamedTuple):
    """What a checkpoint tells about a model; None where it does not."""

    vocab_size: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Where a model is, and the options of its loader.

    ``checkpoint`` is a folder, of a model or of a training run, a hub id, a training ``*.ckpt`` of
    the original code or of train.py, of which ``weights`` are "ema" or "raw", or ``demo:NAME`` for
    one that comes with the package. The sizes
    are only needed where the files do not tell them; ``mask_id`` where the tokenizer brought its
    own mask token (103 for bert-base-uncased), else it is the last. A ``block_size`` of "whole" is
    the sequence. The network's matrix products run in ``dtype``, a torch.dtype or its name.
    ``family`` is the family's name, where the files cannot tell it; ``check`` has it try on a few
    tokens that the network is read as the family says. Groups of ``tensor_parallel`` processes
    share one copy of the network. ``revision`` is a hub id's. ``plugin`` is
    the module of a family of your own (docs/FAMILIES.md): you name it, so it is imported and runs.
    Nothing in a checkpoint is ever executed.
    """

    checkpoint: Source
    family: str | None = None
    check: bool = True
    tensor_parallel: int = 1
    weights: str = "ema"
    block_size: int | str | None = None
    n_heads: int | None = None
    model_length: int | None = None
    mask_id: int | None = None
    dtype: str | torch.dtype = "float32"
    revision: str | None = None
    plugin: str | None = None

    def __post_init__(self) -> None:
        """Know a precision by its name, and refuse those that networks cannot run in."""
        name = str(self.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise ValueError(f"dtype: expected {', '.join(_DTYPES)}, got {name!r}")
        object.__setattr__(self, "dtype", name)
        if isinstance(self.block_size, str) and self.block_size != WHOLE:
            raise ValueError(f"block_size: expected a number or {WHOLE!r}, got {self.block_size!r}")
        if isinstance(self.block_size, int) and self.block_size < 1:
            raise ValueError(f"block_size: expected at least 1, got {self.block_size}")

    @classmethod
    def of(cls, source: "Checkpoint | Source", options: Mapping[str, Any]) -> "Checkpoint":
        """Name a checkpoint, and refuse options that do not exist."""
        *names, last = [field.name for field in fields(cls)[1:]]
        if unknown := [name for name in options if name not in (*names, last)]:
            raise TypeError(f"{', '.join(unknown)}: expected {', '.join(names)} or {last}")
        return (
            replace(source, **options) if isinstance(source, Checkpoint) else cls(source, **options)
        )

    def __str__(self) -> str:
        """Return the name that it was given, for messages."""
        return str(self.checkpoint)

    @property
    def source(self) -> Source:
        """Where the files are."""
        if str(self).startswith(_DEMO):
            return demo_checkpoint(str(self).removeprefix(_DEMO))
        return find_model(self.checkpoint, self.weights)

    @property
    def torch_dtype(self) -> torch.dtype:
        """What the network's matrix products run in."""
        return _DTYPES[str(self.dtype)]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The ``config.json`` of a folder or hub id."""
        return read_config(self.source, self.revision)

    def find_file(self, name: str) -> Path:
        """Return a file of a folder or hub id; nothing but that file is downloaded."""
        return find_file(self.source, name, self.revision)

    def check_options(self, *used: str) -> None:
        """Refuse options that a family makes no use of, so that none is ignored without a word."""
        others = [f for f in fields(self)[1:] if f.name not in (*_EVERYBODYS, *used)]
        if given := [f.name for f in others if getattr(self, f.name) != f.default]:
            names = ", ".join(field.name for field in others)
            kind = self.config.get("model_type")
            raise ValueError(f"{names}: expected none for {self}, a {kind}, got {', '.join(given)}")
