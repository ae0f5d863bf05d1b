"""Which operators run, and how large a tensor they make."""

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
