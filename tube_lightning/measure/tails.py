"""How heavy the tail of TUBE is: which share of its gap to ELBO_K a few blocks make."""

import math
from typing import TypedDict

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.bounds import elbo_k, tube_loo
from tube_lightning.scores import RegimeScores

_ROUNDING = 1e-12
"""Gaps below this share of the scores are rounding, not gaps."""


class LargestBlock(TypedDict):
    """The block with the largest gap."""

    sequence: int
    """which sequence"""
    block: int
    """which of its blocks"""
    nats: float | None
    """its gap"""
    text: str | None


class Tail(TypedDict):
    """How much of the gap between TUBE (leave-one-out) and ELBO_K a few blocks make."""

    top_permille_share: float | None
    """the share of the 0.1% blocks with the largest gaps; null where there is no gap"""
    largest_block: LargestBlock
    """the block with the largest gap"""
    warning: str | None


class GapTail:
    """Collect TUBE (leave-one-out) minus ELBO_K of every block: never negative, draw by draw."""

    def __init__(self) -> None:
        self._gaps: list[Float64[Tensor, " blocks"]] = []
        self._largest: LargestBlock = {"sequence": -1, "block": -1, "nats": None, "text": None}
        self._largest_gap = -math.inf
        self._scale = 0.0

    def update(
        self,
        regime: RegimeScores,
        sequences: Int64[Tensor, " batch"],
        num_tokens: Int64[Tensor, "batch blocks"],
    ) -> None:
        """Count some sequences."""
        if regime.scores.shape[-1] < 2:
            return
        lower, upper = elbo_k(regime.scores), tube_loo(regime.scores)
        gaps = torch.where(upper == lower, 0.0, upper - lower).clamp(min=0)
        gaps = torch.where(num_tokens > 0, gaps, -math.inf)
        self._gaps.append(gaps[num_tokens > 0])
        self._scale += lower[(num_tokens > 0) & lower.isfinite()].abs().sum().item()
        if gaps.numel() and gaps.max() > self._largest_gap:
            self._largest_gap = gaps.max().item()
            row, block = divmod(int(gaps.argmax()), gaps.shape[1])
            nats = self._largest_gap if math.isfinite(self._largest_gap) else None
            self._largest = {
                "sequence": int(sequences[row]),
                "block": block,
                "nats": nats,
                "text": None,
            }

    def compute(self) -> Tail | None:
        """Sum the largest 0.1% (at least one block); None if TUBE had too few orderings."""
        gaps = torch.cat(self._gaps) if self._gaps else torch.empty(0)
        if not len(gaps):
            return None
        top = math.fsum(gaps.topk(-(-len(gaps) // 1000)).values.tolist())
        total = math.fsum(gaps.tolist())
        share: float | None = top / total if _ROUNDING * self._scale < total < math.inf else None
        if total == math.inf:
            share = 1.0
        return {"top_permille_share": share, "largest_block": self._largest, "warning": None}
