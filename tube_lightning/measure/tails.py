"""How heavy the tail of TUBE is: how few blocks and orderings its corpus mean rests on."""

import math
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.bounds import elbo_k, tube_loo
from tube_lightning.measure.heaviness import (
    effective_sample_size,
    pareto_k,
    rests_on_few,
    share_of_first,
    squared_variation,
)
from tube_lightning.regimes import ANY_ORDER, Regime
from tube_lightning.scores import NOWHERE, BlockScores, RegimeScores

FEW_ORDERINGS = 3.0
"""Below so many effective orderings, one or two carry the estimate of a block."""
_ROUNDING = 1e-12
"""Gaps below this share of a block's score are rounding, not gaps."""


class LargestBlock(TypedDict):
    """The block with the largest gap."""

    sequence: int
    """which sequence"""
    block: int
    """which of its blocks"""
    position: int | None
    """its first scored position in the sequence; null where positions are unknown"""
    document: int | None
    """the document of its first scored token; null where unknown"""
    text: str | None
    """what its scored tokens say; null where unknown"""
    nats: float | None
    """its gap; null where it is infinite"""
    share: float
    """its share of the gaps of all blocks"""


class EffectiveOrderings(TypedDict):
    """Effective sample sizes (sum w)^2 / sum w^2 of the orderings, w = p(x | order): 1 to K."""

    median: float
    """of the blocks"""
    lowest_5_percent: float
    """their 5% quantile"""
    share_below_3: float
    """the share of the blocks where one or two orderings carry the estimate"""


class Tail(TypedDict):
    """How few blocks make the gap between TUBE (leave-one-out) and ELBO_K."""

    top_permille_share: float | None
    """the share of the 0.1% blocks with the largest gaps; null where there is no gap"""
    top_percent_share: float | None
    """the share of the 1% blocks with the largest gaps; null where there is no gap"""
    largest_block: LargestBlock | None
    """the block with the largest gap; null where there is no gap"""
    effective_blocks: float | None
    """(sum gap)^2 / sum gap^2: how many blocks carry the gap; null where there is none"""
    weight_variation: float | None
    """(sd / mean)^2 of a block's p(x | order), averaged over blocks by their gaps; null likewise"""
    effective_orderings: EffectiveOrderings
    """how many orderings carry the estimates of the blocks"""
    pareto_k: float | None
    """tail index of p_hat / psi over blocks; null with fewer than 100 blocks or an infinite gap"""
    warning: str | None
    """a sentence with advice where the corpus mean rests on few blocks"""


class GapTail:
    """Collect TUBE (leave-one-out) minus ELBO_K of every block: never negative, draw by draw.

    Three numbers a block are kept. In which order the sequences come does not matter.
    """

    def __init__(self, regime: Regime = ANY_ORDER, *, of_a_bank: bool = False) -> None:
        self.regime, self.of_a_bank = regime, of_a_bank
        self._gaps: list[Float64[Tensor, " blocks"]] = []
        self._orderings: list[Float64[Tensor, " blocks"]] = []
        self._log_ratios: list[Float64[Tensor, " blocks"]] = []
        self._largest: tuple[float, LargestBlock] | None = None
        self._num_orderings = 0
        self._advice = ""

    def update(self, regime: RegimeScores, part: BlockScores) -> None:
        """Count some sequences in one regime; nothing where TUBE has too few orderings."""
        there = part.num_tokens > 0
        if regime.scores.shape[-1] < 2 or not there.any():
            return
        scores = regime.scores[there]
        terms, lower = tube_loo.terms(scores), elbo_k(scores)
        upper = terms.value()
        gaps = torch.where(upper == lower, 0.0, upper - lower)
        gaps = torch.where(gaps > _ROUNDING * lower.abs(), gaps, 0.0)
        self._gaps.append(gaps)
        self._orderings.append(effective_sample_size(scores))
        self._log_ratios.append(terms.averages()[1])
        self._num_orderings, self._advice = scores.shape[-1], self._advise(regime, part)
        if gaps.max() > 0:
            places = there.nonzero()[gaps == gaps.max()].tolist()
            row, block = min(places, key=lambda at: (int(part.sequences[at[0]]), at[1]))
            self._keep_larger(gaps.max().item(), _find_block(part, row, block))

    def _advise(self, regime: RegimeScores, part: BlockScores) -> str:
        """Say what helps: exact values only where there are any, or blocks are small enough."""
        exact, size = "", None if part.documents is None else part.documents.shape[-1]
        if regime.exact is not None:
            exact = "rely on the exact value, "
        elif size is not None and size <= self.regime.largest_exact_block:
            exact = f"take exact values (protocol.exact_max_block_size={size}), "
        banks = "more banks (protocol.num_banks=), " if self.of_a_bank else ""
        return f"{exact}take {banks}more orderings (protocol.num_orderings=) or more text"

    def _keep_larger(self, gap: float, found: LargestBlock) -> None:
        """Remember a block if its gap is the largest; of equal ones the first of the text."""
        if self._largest is not None:
            gap_so_far, known = self._largest
            place, place_so_far = ((b["sequence"], b["block"]) for b in (found, known))
            if gap < gap_so_far or (gap == gap_so_far and place > place_so_far):
                return
        self._largest = gap, found

    def compute(self) -> Tail | None:
        """Tell how heavy the tail is; None if TUBE had too few orderings."""
        if not self._gaps:
            return None
        gaps, orderings = torch.cat(self._gaps), torch.cat(self._orderings)
        largest_first = gaps.sort(descending=True).values
        tail: Tail = {
            "top_permille_share": share_of_first(largest_first, -(-len(gaps) // 1000)),
            "top_percent_share": share_of_first(largest_first, -(-len(gaps) // 100)),
            "largest_block": None,
            "effective_blocks": None,
            "weight_variation": None,
            "effective_orderings": {
                "median": float(np.median(orderings.numpy())),
                "lowest_5_percent": float(np.quantile(orderings.numpy(), 0.05)),
                "share_below_3": int((orderings < FEW_ORDERINGS).sum()) / len(orderings),
            },
            "pareto_k": pareto_k(torch.cat(self._log_ratios)) if gaps.max() < math.inf else None,
            "warning": None,
        }
        if self._largest is None:
            return tail
        gap, block = self._largest
        share = share_of_first(largest_first, 1) or 0.0
        weights = (gaps == gap).double() if gap == math.inf else gaps / gap
        varied = weights * squared_variation(orderings, self._num_orderings)
        tail["largest_block"] = {**block, "nats": gap if gap < math.inf else None, "share": share}
        tail["effective_blocks"] = effective_sample_size(weights.sort().values.log()).item()
        tail["weight_variation"] = math.fsum(varied.tolist()) / math.fsum(weights.tolist())
        tail["warning"] = _warn(tail, len(gaps), self._advice)
        return tail


def _find_block(part: BlockScores, row: int, block: int) -> LargestBlock:
    """Tell where a block is in the text; its gap comes later."""
    position = document = None
    if part.documents is not None:
        documents = part.documents[row, block]
        first = int((documents != NOWHERE).nonzero()[0])  # it has a scored token: it is counted
        position, document = block * len(documents) + first, int(documents[first])
    return {
        "sequence": int(part.sequences[row]),
        "block": block,
        "position": position,
        "document": document,
        "text": None if part.texts is None else part.texts[row][block],
        "nats": None,
        "share": 0.0,
    }


def _warn(tail: Tail, blocks: int, advice: str) -> str | None:
    """Warn if an infinite gap, or few blocks with uneven weights, make the corpus mean."""
    largest = tail["largest_block"]
    effective, variation = tail["effective_blocks"], tail["weight_variation"]
    if largest is None or effective is None or variation is None:
        return None
    where = f"block {largest['block']} of sequence {largest['sequence']}"
    if largest["nats"] is None:
        return f"TUBE is infinite, for one ordering carries all of {where}; {advice}."
    if not rests_on_few(effective, variation):
        return None
    return (
        f"TUBE's gap to ELBO_K rests on about {effective:.1f} of {blocks:,} blocks ({where} makes "
        f"{largest['share']:.0%} of it): TUBE may lie below log p, and its error is not to be "
        f"trusted; {advice}."
    )
