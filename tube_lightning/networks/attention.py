"""The choice of shared-prefix attention: the kernel where it runs and is right, else matmuls."""

import math
import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.grouped_attention import plan_grouped
from tube_lightning.networks.kernel_attention import plan_launches
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.shared_prefix import Attend, PlanAttention
from tube_lightning.networks.tiles import choose_tile, fits_kernel
from tube_lightning.networks.trunk import Projections

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""How far the kernel may be from float64, as a part of the largest value that it averages."""
_NUM_CHECKED_ROWS = 8
_proven: set[tuple[object, ...]] = set()
"""Kinds of launches of this process whose first use was right."""
_given_up: set[torch.device] = set()
"""Devices on which one was not."""


def default_attention(device: torch.device) -> PlanAttention:
    """Choose what is fast on a device; differentiable wherever gradients are asked for."""
    return plan_kernel if device.type == "cuda" and find_spec("triton") else plan_grouped


def plan_kernel(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan our Triton kernel, and matmuls where it turns out to be of no use.

    The first launch of a kind (device, dtype, shape) is compared with matmuls in float64, on a few
    of its rows. If they disagree, or it does not compile or start, one warning tells so, and the
    device takes matmuls from then on. So does what asks for gradients, runs under autocast, or has
    heads wider than the kernel's; rows without clean tokens attend densely.
    """
    if clean_length == 0:
        return lambda own, *_: attend_densely(*own)
    launch = plan_launches(rows, clean_length)

    @lru_cache(maxsize=1)
    def matmuls() -> Attend:
        return plan_grouped(rows, clean_length)

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean kv_heads width"],
        clean_values: Float[Tensor, "batch clean kv_heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        queries, inputs = own.queries, (own, clean_keys, clean_values)
        if rows.runs[-1].sequence >= len(clean_keys):  # they are in order; nothing else is read
            raise ValueError(
                f"rows.sequence: expected {len(clean_keys)} sequences, got number "
                f"{rows.runs[-1].sequence}"
            )
        if queries.device in _given_up or not _suits_kernel(*own, clean_keys, clean_values):
            return matmuls()(*inputs)
        kind = _kind_of_launch(*inputs)
        if kind in _proven:
            return launch(*inputs)
        try:
            attended = launch(*inputs)
            _check(attended, rows, *inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers and drivers raise what they like
            _give_up(queries, error)
            return matmuls()(*inputs)
        _proven.add(kind)
        return attended

    return attend


def _suits_kernel(*tensors: Tensor) -> bool:
    """Say whether there is a kernel for queries, keys and values that asks for no gradients.

    They have one dtype, but under autocast: it narrows values, and not what has been rotated.
    """
    queries = tensors[0]
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    alike = all(t.dtype == queries.dtype for t in tensors)
    return alike and not differentiated and fits_kernel(queries.dtype, queries.shape[-1])


def _kind_of_launch(own: Projections, clean_keys: Tensor, _: Tensor) -> tuple[object, ...]:
    """Return what decides which kernel is compiled, and how it goes through a row."""
    queries = own.queries
    num_rows, size, heads, width = queries.shape
    tile = choose_tile(queries.dtype, width, num_rows * size // len(clean_keys))
    return (queries.device, queries.dtype, tile, size, width, heads // clean_keys.shape[2])


def _give_up(queries: Float[Tensor, "rows size heads width"], error: Exception) -> None:
    """Take no kernel on this device from now on, and say so."""
    _given_up.add(queries.device)
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    warnings.warn(
        f"attention on {queries.device}: our kernel for {queries.dtype} heads of "
        f"{queries.shape[-1]} is of no use here ({reason}); going on by matmuls, which is slower",
        stacklevel=3,
    )


def _check(
    attended: Float[Tensor, "rows size heads width"],
    rows: NoisyRows,
    own: Projections,
    clean_keys: Float[Tensor, "batch clean kv_heads width"],
    clean_values: Float[Tensor, "batch clean kv_heads width"],
) -> None:
    """Compare some rows, the first and the last among them, with matmuls in float64.

    Where these give no numbers either, it is not the kernel's fault.
    """
    num_rows, clean_length = len(attended), clean_keys.shape[1]
    picked = torch.linspace(0, num_rows - 1, min(num_rows, _NUM_CHECKED_ROWS)).long()
    picked = picked.to(attended.device)
    theirs = rows.sequence[picked]
    some = NoisyRows(
        torch.arange(len(picked), device=picked.device),
        rows.start[picked],
        *(t[picked] for t in (rows.tokens, rows.revealed, rows.needed)),
    )
    expected = plan_grouped(some, clean_length)(
        Projections(*(p[picked].double() for p in own)),
        clean_keys[theirs].double(),
        clean_values[theirs].double(),
    )
    scale = torch.maximum(own.values.abs().max(), clean_values.abs().max()).item()
    off = (attended[picked] - expected).where(expected.isfinite(), 0).abs().max().item()
    allowed = _TOLERANCE[attended.dtype] * scale
    if math.isfinite(scale) and not off <= allowed:  # so that NaN is none
        raise ArithmeticError(f"it is {off:.1e} off, expected {allowed:.1e}")
