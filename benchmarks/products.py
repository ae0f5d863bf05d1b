"""How fast are the linear maps, against torch's own?

    python -m benchmarks.products        # half a minute

fp32 on this CPU, with the shapes of a layer and of a piece of the head, at the published size and
at the embedded models'. Both in turns, so that they meet the machine in the same states; the
gradients are the backward of one call, forward not counted.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from tube_lightning.networks import linear

SHAPES = {
    "published, queries to values": (1024, 768, 2304),
    "published, attention's output": (1024, 768, 768),
    "published, MLP in": (1024, 768, 3072),
    "published, MLP out": (1024, 3072, 768),
    "published, piece of the head": (512, 768, 4096),
    "embedded, queries to values": (1024, 128, 384),
    "embedded, MLP in": (1024, 128, 512),
}
REPEATS = 15
Linear = Callable[[Tensor, Tensor, Tensor], Tensor]


def forward_seconds(function: Linear, x: Tensor, weight: Tensor, bias: Tensor) -> float:
    """Time one product."""
    with torch.inference_mode():
        start = time.perf_counter()
        function(x, weight, bias)
        return time.perf_counter() - start


def backward_seconds(function: Linear, x: Tensor, weight: Tensor, bias: Tensor) -> float:
    """Time the gradients of one product."""
    inputs = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    product = function(*inputs)
    pull = torch.ones_like(product)
    start = time.perf_counter()
    product.backward(pull)
    return time.perf_counter() - start


def measure(tokens: int, dim: int, features: int) -> list[float]:
    """Return GFLOP/s of torch and of ours: forward, then backward (twice the operations)."""
    inputs = torch.randn(tokens, dim), torch.randn(features, dim), torch.randn(features)
    rates = []
    for timed, products in ((forward_seconds, 1), (backward_seconds, 2)):
        taken: dict[Linear, list[float]] = {F.linear: [], linear: []}
        for _ in range(REPEATS):
            for function, seconds in taken.items():
                seconds.append(timed(function, *inputs))
        flop = products * 2 * tokens * dim * features / 1e9
        rates += [flop / statistics.median(seconds[2:]) for seconds in taken.values()]
    return rates


def main() -> None:
    """Measure and print."""
    console = Console(width=110)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32, GFLOP/s")
    table = Table("product", "forward: torch", "ours", "ratio", "backward: torch", "ours", "ratio")
    for name, shape in SHAPES.items():
        forward, ours, backward, our_backward = measure(*shape)
        cells = (
            f"{forward:.0f}",
            f"{ours:.0f}",
            f"{ours / forward:.2f}x",
            f"{backward:.0f}",
            f"{our_backward:.0f}",
            f"{our_backward / backward:.2f}x",
        )
        table.add_row(f"{name} ({' x '.join(map(str, shape))})", *cells)
    console.print(table)


if __name__ == "__main__":
    main()
