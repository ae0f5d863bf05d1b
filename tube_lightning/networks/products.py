"""Linear maps: fp32 products on x86 by oneDNN, all others by torch's choice.

torch multiplies fp32 matrices on a CPU with MKL, which leaves the wide vector units of processors
that are not Intel's idle. Its wheels carry oneDNN as well, for compiled graphs: there that takes
less than half the time, and applies the activation on the way (`python -m benchmarks.products`).
"""

import platform
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_X86 = ("x86_64", "amd64")


def linear(
    x: Float[Tensor, "*tokens dim"],
    weight: Float[Tensor, "features dim"],
    bias: Float[Tensor, " features"] | None = None,
) -> Float[Tensor, "*tokens features"]:
    """Return ``x @ weight.T + bias``. Differentiable."""
    if not _by_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    if _needs_gradient(x, weight, bias):
        product: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return product
    return _onednn(x, weight, bias)


def linear_gelu(
    x: Float[Tensor, "*tokens dim"],
    weight: Float[Tensor, "features dim"],
    bias: Float[Tensor, " features"] | None = None,
) -> Float[Tensor, "*tokens features"]:
    """Return the GELU (its tanh form) of `linear`. Differentiable."""
    if _by_onednn(x, weight, bias) and not _needs_gradient(x, weight, bias):
        return _onednn(x, weight, bias, "gelu")
    return F.gelu(linear(x, weight, bias), approximate="tanh")


class ProductLinear(nn.Linear):
    """A linear map of somebody else's network, by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``."""
        return linear(x, self.weight, self.bias)


def use_own_products(network: nn.Module) -> None:
    """Let the linear maps of a network of another library be `linear`, weights as they are."""
    for module in network.modules():
        if type(module) is nn.Linear:
            module.__class__ = ProductLinear


def _by_onednn(x: Tensor, *parameters: Tensor | None) -> bool:
    """Say whether a product is oneDNN's: fp32, not empty, and no other precision is asked for.

    It reads all tensors as the CPU's, wherever they are; torch refuses those that do not match.
    """
    tensors = [x, *(t for t in parameters if t is not None)]
    return (
        all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
        and x.numel() > 0
        and _has_onednn()
        and not torch.is_autocast_enabled("cpu")
    )


@lru_cache(maxsize=1)
def _has_onednn() -> bool:
    return (
        platform.machine().lower() in _X86
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    bias = None if bias is None else bias.contiguous()  # it does not look at the stride of this one
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "tanh")
    return product


class _Linear(torch.autograd.Function):
    """oneDNN's product with its two gradients, which are products too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        flat = gradient.reshape(-1, gradient.shape[-1])
        if ctx.needs_input_grad[0]:
            of_x = _onednn(gradient, weight.mT, None)
        if ctx.needs_input_grad[1]:
            of_weight = _onednn(flat.mT, x.reshape(-1, x.shape[-1]).mT, None)
        if ctx.needs_input_grad[2]:
            of_bias = flat.sum(dim=0)
        return of_x, of_weight, of_bias
