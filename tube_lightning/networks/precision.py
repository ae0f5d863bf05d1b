"""The precision that a model states, whatever the process is set to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def own_precision(device: torch.device) -> Iterator[None]:
    """Compute in the dtypes of the tensors: no autocast, and no TF32 in the place of fp32.

    torch's default is fp32, and Lightning leaves it alone; where the environment has
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, products of fp32 lose 13 of their 23 bits unasked.
    """
    with torch.autocast(device.type, enabled=False):
        if device.type != "cuda" or torch.backends.cuda.matmul.fp32_precision != "tf32":
            yield
            return
        cpu: Any = torch.backends.mkldnn  # the same switch sets its products
        on_cpu = cpu.matmul.fp32_precision
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision("medium" if on_cpu == "bf16" else "high")
            cpu.matmul.fp32_precision = on_cpu


def device_only(fn: Callable[[Tensor], Tensor], now: torch.device) -> Callable[[Tensor], Tensor]:
    """Reduce what ``nn.Module._apply`` would do to tensors, which are ``now`` on one device.

    They change to the device where it would leave them, and stay as they are otherwise.
    """
    device = fn(torch.empty(0, device=now)).device
    return lambda tensor: tensor.to(device)
