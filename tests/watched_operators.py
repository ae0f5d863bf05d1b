"""Which operators run, how large a tensor they make, and how many bytes there are at once."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = ("item", "_local_scalar_dense", "nonzero", "is_nonzero", "unique_consecutive")
"""Operators whose answer the host waits for."""


class Watch(TorchDispatchMode):
    """Note the operators that ran, and the largest tensor that one returned."""

    def __init__(self):
        super().__init__()
        self.names, self.largest = set(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.names.add(func.overloadpacket.__name__)
        sizes = [t.numel() for t in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(t)]
        self.largest = max([self.largest, *sizes])
        return out


class Held(TorchDispatchMode):
    """Count the bytes of the tensors that operators have made, and the most at once."""

    def __init__(self):
        super().__init__()
        self.bytes = self.most = 0
        self._known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves((args, kwargs or {})):
            if torch.is_tensor(tensor):  # were there before, or are counted already
                self._known.add(tensor.untyped_storage()._cdata)
        for tensor in torch.utils._pytree.tree_leaves(out):
            if torch.is_tensor(tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        if storage._cdata in self._known:
            return
        self._known.add(storage._cdata)
        self._add(storage.nbytes())
        weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())

    def _forget(self, name, size):
        self._known.discard(name)
        self._add(-size)

    def _add(self, size):
        self.bytes += size
        self.most = max(self.most, self.bytes)
