"""Where tensors live: networks on the device, plans on the host, float64 where there is any.

The host draws orderings and plans which rows a network sees; it sends what the device needs and
never asks back before a batch is done. Tables, lattices, scores and sums of metrics are float64:
they live on the device of the network, or on the CPU if that device has no such numbers.
"""

from functools import lru_cache

import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

_READS_LATER = "mps"
"""A device that may read what it was sent after the host has freed it (pytorch issue 189690)."""


@lru_cache
def exact_device(device: torch.device) -> torch.device:
    """Return where the float64 numbers of a device's results live: Apple's GPU has none."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device).add_(1)
    except (TypeError, RuntimeError):
        return torch.device("cpu")
    return device


def exactly(values: Shaped[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Return values in float64, where these live."""
    return values.to(exact_device(values.device)).double()


def send(tensor: Shaped[Tensor, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """Copy what the host has to a device, and do not wait for it wherever that is safe.

    What is on a device already is copied as well, and waited for.
    """
    safe = tensor.device.type == "cpu" and device.type != _READS_LATER
    return tensor.to(device, non_blocking=safe)
