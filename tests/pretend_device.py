"""A device that is not there: tensors claim to be on it while their numbers are on the CPU.

As on a real one, tensors of different devices do not mix, and whoever asks for a value waits until
the device has caught up: ``synchronisations`` counts the waits. Inside of ``without_float64`` it
has no such numbers, as Apple's has not. Values are the CPU's, bit for bit.
"""

import contextlib
from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map_only

from tube_lightning.networks import head, products
from tube_lightning.placement import exact_device

aten = torch.ops.aten
_ASKS = {
    aten._local_scalar_dense: "item",
    aten.equal: "equal",
    aten.nonzero: "nonzero",
    aten.masked_select: "masked_select",
    aten._unique2: "unique",
    aten.unique_dim: "unique",
    aten.unique_consecutive: "unique",
    aten.bincount: "bincount",
    aten.repeat_interleave: "repeat_interleave",
}
"""Operators of whose results the host must know a value, or the size."""
_counters: list[Counter] = []


class _Backend(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]

    def synchronize(self, device=None):
        _wait("synchronize")


backend_registration._setup_privateuseone_for_python_backend("pretend", backend_module=_Backend())
PRETEND = torch.device("pretend:0")
_has_float64 = True


@contextlib.contextmanager
def without_float64():
    """Take float64 from the device: a tensor of it there is an error."""
    global _has_float64
    _has_float64 = False
    exact_device.cache_clear()
    try:
        yield
    finally:
        _has_float64 = True
        exact_device.cache_clear()


@contextlib.contextmanager
def synchronisations():
    """Count how often the host waits for a pretend device, by what it waits for."""
    counter = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)


def _wait(reason):
    for counter in _counters:
        counter[reason] += 1


class PretendTensor(Tensor):
    """A tensor on a pretend device; ``held`` has its numbers."""

    @staticmethod
    def __new__(cls, held, device):
        if held.dtype == torch.float64 and not _has_float64:
            raise TypeError(f"{device} has no float64")
        with torch.inference_mode(False):  # or views of ordinary tensors would be none
            return torch.Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=device,
            )

    def __init__(self, held, device):
        self.held = held

    def __repr__(self):
        return f"{self.held!r} on {self.device}"

    def tolist(self):
        return self.cpu().tolist()  # torch refuses subclasses

    def __reduce_ex__(self, protocol):
        return self.held.detach().__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if torch.is_inference_mode_enabled():  # elsewhere autograd has taken operators apart
            results = operator.decompose(*args, **kwargs)
            if results is not NotImplemented:
                return results
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        device = next(tensor.device for tensor in given if isinstance(tensor, cls))
        _look_at(operator, given, args, kwargs)
        if kwargs.get("device") is not None:
            device, kwargs["device"] = torch.device(kwargs["device"]), torch.device("cpu")
        held = tree_map_only(cls, lambda tensor: tensor.held, (args, kwargs))
        results = operator(*held[0], **held[1])
        known = {id(tensor.held): tensor for tensor in given if isinstance(tensor, cls)}
        if any(tensor.shape != tensor.held.shape for tensor in known.values()):
            raise NotImplementedError(f"{operator}: a pretend tensor cannot be resized")
        return tree_map_only(
            Tensor, lambda result: known.get(id(result), _put(result, device)), results
        )


def _put(held, device):
    """Claim that a tensor of the CPU is on a device."""
    return held if device.type == "cpu" else PretendTensor(held, device)


def _look_at(operator, given, args, kwargs):
    """Refuse what the device cannot do, and count a wait where the host asks for something."""
    packet = operator.overloadpacket
    places = {tensor.device for tensor in given if tensor.ndim or tensor.device.type != "cpu"}
    dtypes = {kwargs.get("dtype"), *(tensor.dtype for tensor in given if tensor.ndim)}
    if torch.float64 in dtypes and not _has_float64:
        raise TypeError(f"{operator}: {PRETEND} has no float64")
    if packet is aten.copy_ or packet is aten._to_copy:
        _look_at_copy(args, kwargs)
        return
    if len(places) > 1:
        raise RuntimeError(f"{operator}: expected tensors on one device, got {places}")
    if packet in _ASKS:
        _wait(_ASKS[packet])
    if packet in (aten.index, aten.index_put, aten.index_put_):
        by_mask = any(index is not None and index.dtype == torch.bool for index in args[1])
        if by_mask and (packet is aten.index or args[2].numel() > 1):  # one value only fills
            _wait("boolean index")


def _look_at_copy(args, kwargs):
    """Count a copy between devices, unless it may go on while the host does."""
    if len(args) > 1:  # copy_
        source, target = args[1].device, args[0].device
    else:
        source = args[0].device
        target = torch.device(kwargs.get("device") or source)
    if target == source:
        return
    if not (kwargs.get("non_blocking") or (len(args) > 2 and args[2])):
        _wait("copy")
    elif target.type == "cpu":
        raise RuntimeError("copy: expected to wait for numbers that come to the host")


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    dtype = dtype or torch.get_default_dtype()
    return PretendTensor(torch.empty(size, dtype=dtype, memory_format=memory_format), device)


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    dtype = dtype or torch.get_default_dtype()
    return PretendTensor(torch.empty_strided(size, stride, dtype=dtype), device)


def _arange(*limits, dtype=None, layout=None, device=None, pin_memory=None):
    """Do what torch would do by resizing a tensor."""
    return PretendTensor(torch.arange(*limits, dtype=dtype), device)


def _copy_from(source, target, non_blocking=False):
    """Do what ``torch.tensor`` and ``new_tensor`` ask for: they go past ``__torch_dispatch__``."""
    arguments = (target, source, non_blocking)
    return PretendTensor.__torch_dispatch__(aten.copy_.default, (PretendTensor,), arguments)


_kernels = torch.library.Library("aten", "IMPL")
_kernels.impl("empty.memory_format", _empty, "PrivateUse1")
_kernels.impl("empty_strided", _empty_strided, "PrivateUse1")
_kernels.impl("_copy_from", _copy_from, "PrivateUse1")
for _name in ("arange", "arange.start", "arange.start_step"):
    _kernels.impl(_name, _arange, "PrivateUse1")


@pytest.fixture(autouse=True)
def same_arithmetic(monkeypatch):
    """Let the CPU multiply, attend and predict as a device without kernels of its own does."""
    monkeypatch.setattr(products, "_has_onednn", lambda: False)
    monkeypatch.setattr(head, "_by_vocabulary", head._by_tokens)
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.fixture(params=[True, False], ids=["float64", "without_float64"])
def both_kinds(request):
    """Run on a device with float64, and on one without."""
    with contextlib.nullcontext() if request.param else without_float64():
        yield
