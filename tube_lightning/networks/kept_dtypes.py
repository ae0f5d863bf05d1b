"""Models that follow a trainer to its device, but keep the dtypes that they were loaded with."""

from collections.abc import Callable

import torch
from torch import Tensor


def device_only(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Reduce what ``nn.Module._apply`` would do to tensors to their change of device."""
    device = fn(torch.empty(0)).device
    return lambda tensor: tensor.to(device)
