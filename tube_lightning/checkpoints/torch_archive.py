"""Files of ``torch.save``: a zip with an (inert) pickle and raw numbers, read when asked for.

Why not ``torch.load(mmap=True)`` with an inert ``pickle_module``? Torch 2.13 unpacks compressed
pickles, reads past the end of a storage's entry, checks no checksum and runs TorchScript's code.
"""

import math
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tube_lightning.checkpoints.pickles import StandIn, read_pickle

_DTYPES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}
_TENSOR = "torch._utils._rebuild_tensor_v2"
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that is still in its file; its arguments were checked against its storage."""

    archive: "TorchArchive"
    key: str
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def read(self) -> Tensor:
        """Read the numbers; tensors that shared a storage share it again."""
        storage = self.archive.storage(self.key, self.dtype)
        return storage.as_strided(self.shape, self.stride, self.offset)


class TorchArchive:
    """An open file of ``torch.save``.

    ``content`` is what was saved, with ``StoredTensor`` for tensors, plain dicts, lists and values
    for OmegaConf's, and a ``StandIn`` for each object of another class. A tensor whose arguments
    make no sense stays a ``StandIn`` too.
    """

    def __init__(self, path: Path, entries: zipfile.ZipFile) -> None:
        infos = entries.infolist()
        pickles = [info.filename for info in infos if info.filename.endswith("/data.pkl")]
        # torch compresses nothing; what others compressed could unpack to any size
        if len(pickles) != 1 or any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise ValueError(f"{path}: expected a checkpoint of torch.save, got another zip file")
        self._path, self._entries = path, entries
        self._root = pickles[0].removesuffix("data.pkl")
        self._storages: dict[tuple[str, torch.dtype], Tensor] = {}
        has_order = f"{self._root}byteorder" in entries.namelist()
        order = self._entry("byteorder").decode(errors="replace") if has_order else "little"
        if order not in ("little", "big"):
            raise ValueError(f"{path}: byteorder: expected little or big, got {order!r}")
        self._swap = order != sys.byteorder
        data = self._entry("data.pkl")
        try:
            self.content = self._plain(read_pickle(data), {})
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: {error}") from error

    def _entry(self, name: str) -> bytes:
        try:
            return self._entries.read(self._root + name)
        except (zipfile.BadZipFile, OSError, KeyError, EOFError, RuntimeError, ValueError) as error:
            raise ValueError(f"{self._path}: missing or corrupt entry {name} ({error})") from error

    def storage(self, key: str, dtype: torch.dtype) -> Tensor:
        """Return a storage as a flat tensor."""
        if (key, dtype) not in self._storages:
            raw = torch.tensor([], dtype=torch.uint8)
            if data := self._entry(f"data/{key}"):
                raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if self._swap:
                raw = raw.unflatten(0, (-1, dtype.itemsize)).flip(1).flatten()
            self._storages[key, dtype] = raw.view(dtype)
        return self._storages[key, dtype]

    def _plain(self, node: Any, done: dict[int, Any]) -> Any:  # noqa: ANN401
        """Interpret a tree; ``done`` keeps the results, as parts may be shared or cyclic."""
        if id(node) in done:
            return done[id(node)]
        result = node
        if isinstance(node, dict):
            result = done[id(node)] = {}
            result.update((key, self._plain(value, done)) for key, value in node.items())
        elif isinstance(node, list):
            result = done[id(node)] = []
            result.extend(self._plain(value, done) for value in node)
        elif isinstance(node, tuple):
            result = tuple(self._plain(value, done) for value in node)
        elif isinstance(node, StandIn):
            result = self._known(node, done)
        done[id(node)] = result
        return result

    def _known(self, node: StandIn, done: dict[int, Any]) -> Any:  # noqa: ANN401
        """Interpret the few classes whose meaning we know."""
        if node.path == _TENSOR:
            return self._tensor(node.args) or node
        if node.path in _PARAMETERS and node.args:
            return self._plain(node.args[0], done)
        if node.path.startswith("omegaconf.") and isinstance(node.state, dict):
            for name in ("_content", "_val"):
                if name in node.state:
                    return self._plain(node.state[name], done)
        if node.items or node.path == "collections.OrderedDict":
            return self._plain(node.items, done)
        return node

    def _tensor(self, args: tuple[Any, ...]) -> StoredTensor | None:
        """Interpret the arguments of a tensor; None if they do not fit its storage."""
        match args:
            case (("storage", type() as kind, str(key), _, numel), offset, shape, stride, *_):
                pass
            case _:
                return None
        dtype = _DTYPES.get(getattr(kind, "path", ""))
        if dtype is None or not isinstance(shape, tuple) or not isinstance(stride, tuple):
            return None
        counts = (numel, offset, *shape, *stride)
        if any(type(n) is not int or not 0 <= n < 1 << 62 for n in counts) or len(shape) != len(
            stride
        ):
            return None
        last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        # a tensor that repeats its storage (stride 0) could pretend to any size
        inside = math.prod(shape) <= numel and (0 in shape or last < numel)
        info = self._entries.NameToInfo.get(f"{self._root}data/{key}")
        if not inside or info is None:
            return None
        if not info.file_size == info.compress_size == numel * dtype.itemsize:
            return None
        return StoredTensor(self, key, dtype, offset, shape, stride)


@contextmanager
def open_archive(path: str | PathLike[str]) -> Iterator[TorchArchive]:
    """Open a file of ``torch.save`` to read tensors from, without executing its pickle."""
    try:
        entries = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ValueError(
            f"{path}: expected a checkpoint in torch's zip format (torch 1.6 or later), "
            f"got a truncated file or another format ({error})"
        ) from error
    with entries:
        yield TorchArchive(Path(path), entries)
