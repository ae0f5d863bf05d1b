"""Models that follow a trainer to its device, but keep the dtypes that they were loaded with."""

from collections.abc import Callable

import torch
from torch import Tensor


def device_only(fn: Callable[[Tensor], Tensor], now: torch.device) -> Callable[[Tensor], Tensor]:
    """Reduce what ``nn.Module._apply`` would do to tensors, which are ``now`` on one device.

    They change to the device where it would leave them, and stay as they are otherwise.
    """
    device = fn(torch.empty(0, device=now)).device
    return lambda tensor: tensor.to(device)
