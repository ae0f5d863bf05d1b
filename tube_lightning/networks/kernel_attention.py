"""Shared-prefix attention by our Triton kernel: one launch a layer, nothing copied, no waiting."""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.shared_prefix import Attend
from tube_lightning.networks.tiles import Cut, choose_tile, cut_rows, padded_width
from tube_lightning.networks.trunk import Projections


def plan_launches(rows: NoisyRows, clean_length: int) -> Attend:
    """Plan one launch a layer, for dtypes and widths that ``fits_kernel`` takes; no gradients."""
    rows.check_runs(clean_length)
    num_rows, size = rows.tokens.shape

    @lru_cache(maxsize=1)  # all layers have the same number of sequences
    def cut(batch: int, rows_per_tile: int) -> Cut:
        return cut_rows(rows, batch, rows_per_tile)

    def attend(
        own: Projections,
        clean_keys: Float[Tensor, "batch clean kv_heads width"],
        clean_values: Float[Tensor, "batch clean kv_heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        from tube_lightning.networks.prefix_kernel import attend_to_prefix  # needs Triton

        inputs = [_aligned(t) for t in (*own, clean_keys, clean_values)]
        batch, heads, width = len(clean_keys), *own.queries.shape[2:]
        tile = choose_tile(own.queries.dtype, width, num_rows * size // batch)
        work = cut(batch, max(1, tile.queries // size))
        out = torch.empty_like(inputs[0], memory_format=torch.contiguous_format)
        grid = (len(work.first), heads, -(-size // tile.queries))
        with torch.cuda.device_of(out):  # Triton launches on the current device
            attend_to_prefix[grid](
                *inputs,
                out,
                *work,
                width**-0.5 * math.log2(math.e),
                size,
                out.shape[-1],
                heads // clean_keys.shape[2],
                *(stride for t in inputs for stride in t.stride()[:3]),
                *out.stride()[1:3],
                QUERIES=tile.queries,
                KEYS=tile.keys,
                WIDTH=padded_width(width),
                PRECISION="ieee",
                num_warps=tile.num_warps,
                num_stages=tile.num_stages,
            )
        return out[..., :width]

    return attend


def _aligned(
    tensor: Float[Tensor, "rows tokens heads width"],
) -> Float[Tensor, "rows tokens heads padded"]:
    """Return a tensor whose last axis is dense and a multiple of 16: as a rule itself.

    Only heads of unusual widths are copied, with zeros behind: the kernel loads by vectors. So are
    rows so far apart in memory that the kernel's 32 bits do not reach across one.
    """
    padded = F.pad(tensor, (0, -tensor.shape[-1] % 16)) if tensor.shape[-1] % 16 else tensor
    _, tokens, heads, _ = padded.shape
    far = max(tokens * padded.stride(1), heads * padded.stride(2)) >= 2**31
    return padded.contiguous() if far or padded.stride(-1) != 1 else padded
