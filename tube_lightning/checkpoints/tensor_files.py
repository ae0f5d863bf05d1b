"""The tensors of a checkpoint, one at a time: one safetensors file, or shards with an index."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tube_lightning.checkpoints.checkpoint import Checkpoint
from tube_lightning.checkpoints.published import WEIGHTS_FILE

INDEX_FILE = "model.safetensors.index.json"


def list_tensor_files(checkpoint: Checkpoint) -> list[Path]:
    """Find the files that hold a checkpoint's tensors: one, or those that the index names."""
    try:
        return [checkpoint.find_file(WEIGHTS_FILE)]
    except FileNotFoundError as error:
        try:
            index = checkpoint.find_file(INDEX_FILE)
        except FileNotFoundError:
            raise error from None
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: expected a weight_map of tensors to files") from error
    for shard in shards:
        if Path(shard).name != shard:
            raise ValueError(f"{index}: expected names of files beside it, got {shard!r}")
    return [checkpoint.find_file(shard) for shard in shards]


def iterate_slices(checkpoint: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Yield each tensor's name and its slice: shape known, and nothing read before it is cut."""
    for path in list_tensor_files(checkpoint):
        with open_tensors(path) as file:
            for name in file.keys():  # noqa: SIM118 (no dictionary)
                yield name, file.get_slice(name)


def hash_files(checkpoint: Checkpoint) -> str:
    """Hash the files that hold a checkpoint's tensors, in their order, and their wanted dtype."""
    digest = hashlib.sha256(str(checkpoint.dtype).encode())
    for path in list_tensor_files(checkpoint):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file; what is none is refused by name."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file ({error})") from error
