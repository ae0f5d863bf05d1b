"""The block model against an ARM of another tokenizer: bits per byte of the text both scored."""

import math
from collections.abc import Mapping
from typing import Any

from tube_lightning.measure import CorpusCounts, RegimeValues
from tube_lightning.metrics import EXACT, Measured
from tube_lightning.report.estimates import finite
from tube_lightning.report.schema import PerByte
from tube_lightning.report.verdict import LEVEL, Verdict
from tube_lightning.report.wording import counted
from tube_lightning.scores import ARM


def compare_per_byte(
    regimes: dict[str, RegimeValues], counts: CorpusCounts, about: Mapping[str, Any]
) -> PerByte:
    """Judge by the shared text alone, over which ``regimes`` were measured.

    Both sums are over the same bytes, so a rate per token of the block model's becomes one per byte
    by one factor for both.
    """
    verdict = Verdict.of(regimes, counts)
    if not counts.bytes:
        raise ValueError("per byte: expected a text of which bytes are known, got none")
    scale = counts.tokens / counts.bytes / math.log(2)
    comparison = verdict.comparison()
    if comparison is None:
        raise ValueError("per byte: expected an ARM beside the shared blocks, got none")
    nats, interval = comparison["nats_per_token"], comparison["ci95"]
    values = verdict.regime.values
    return {
        "arm": dict(about),
        "regime": verdict.regime_name,
        "bytes": counts.bytes,
        "documents": counts.documents,
        "bits_per_byte": {
            name: _bits(values[name], scale)
            for name in dict.fromkeys((verdict.low, verdict.high))
            if name in values
        },
        "arm_bits_per_byte": _bits(values[ARM], scale),
        "winner": comparison["winner"],
        "by": comparison["by"],
        "difference": None if nats is None else nats * scale,
        "ci95": None if interval is None else [end * scale for end in interval],
        "p_arm_is_better": comparison["p_arm_is_better"],
        "p_model_is_better": comparison["p_model_is_better"],
        "sentence": _sentence(verdict, scale, counts.bytes),
    }


def _bits(value: Measured, scale: float) -> float | None:
    return finite(-value.nats_per_token * scale)


def _sentence(verdict: Verdict, scale: float, num_bytes: int) -> str:
    """Say who is better, and what the comparison is not."""
    values = verdict.regime.values
    arm = f"{-values[ARM].nats_per_token * scale:.4f}"
    told = {
        name: f"{-values[name].nats_per_token * scale:.4f}"
        for name in (verdict.low, verdict.high)
        if name in values
    }
    low, high = told.get(verdict.low), told[verdict.high]
    bracket = f"exactly {high}" if verdict.high == EXACT else f"at most {high} in expectation"
    if verdict.high != EXACT and low is not None:
        bracket = f"at least {low} and {bracket}"
    over = f"on the {counted(num_bytes, 'byte')} that both score{_apart(verdict, scale)}"
    ending = "It has another tokenizer: it is compared per byte, and is no surrogate of TUBE."
    if verdict.winner == "arm":
        return (
            f"The ARM wins: {arm} bits per byte, the {verdict.model} has {bracket}, {over}. "
            f"{ending}"
        )
    if verdict.winner == "model":
        return (
            f"The {verdict.model} wins: it has {bracket} bits per byte, the ARM {arm}, {over}. "
            f"{ending}"
        )
    why = "No winner" if not verdict.is_known or verdict.depends_on_luck else "Not distinguishable"
    return (
        f"{why}: the {verdict.model} has {bracket} bits per byte, the ARM {arm}, {over}. {ending}"
    )


def _apart(verdict: Verdict, scale: float) -> str:
    """Write the difference that is tested, with its 95% margin."""
    by_high = verdict.p_values["model"] < LEVEL or verdict.low not in verdict.regime.values
    difference = verdict.difference(verdict.high if by_high else verdict.low)
    if difference is None or not math.isfinite(difference.nats_per_token):
        return ""
    told = f"{abs(difference.nats_per_token) * scale:.4f}"
    if math.isfinite(difference.margin):
        told += f" +- {difference.margin * scale:.4f}"
    documents = verdict.counts.documents
    over = "" if documents is None else f" over {counted(documents, 'document')}"
    return f" ({told} bits per byte apart{over})"
