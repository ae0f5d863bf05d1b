"""Muon in fp32: torch's own computes in bf16, which ends a process on some CPUs and is slow there.

The same rule as ``torch.optim.Muon`` with ``adjust_lr_fn="match_rms_adamw"``, so that one learning
rate serves it and AdamW. Matrices of one shape go through the iteration together.

Reference: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; Liu et al. 2025 (scaling).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_LEAST_NORM = 1e-7
_ADAMW_RMS = 0.2


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: every direction of a matrix moves by about as much."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(matrices, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401
        """Move every matrix that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[matrix.shape].append(matrix)
            for matrices in by_shape.values():
                self._move(matrices, group)
        return loss

    def _move(self, matrices: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Move matrices of one shape: Nesterov's momentum, orthogonalised, of AdamW's size."""
        directions = []
        for matrix in matrices:
            state, gradient = self.state[matrix], cast("Tensor", matrix.grad)
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(matrix)
            buffer = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
            directions.append(torch.lerp(gradient, buffer, group["momentum"]))
        steps = orthogonalise(torch.stack(directions))
        rate = group["lr"] * _ADAMW_RMS * max(matrices[0].shape) ** 0.5
        for matrix, step in zip(matrices, steps, strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-rate)


def orthogonalise(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "..."]:
    """Push all singular values to about one (0.7 to 1.2), by five steps of Newton and Schulz."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_LEAST_NORM)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
