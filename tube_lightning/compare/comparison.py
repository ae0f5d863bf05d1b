"""Runs on the same text -> values, paired differences, and a word for each."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from tube_lightning.bounds import ESTIMATORS
from tube_lightning.compare.notes import list_notes
from tube_lightning.compare.rates import (
    Entrant,
    list_entrants,
    measure_difference,
    measure_rate,
)
from tube_lightning.compare.runs import ComparedRun, Pairing, open_runs, pairing_of
from tube_lightning.compare.schema import (
    SCHEMA_VERSION,
    AgainstFirst,
    ComparedDifference,
    ComparedEntry,
    ComparedValue,
    RunComparison,
    Word,
)
from tube_lightning.compare.sums import RunSums, sum_run
from tube_lightning.metrics import Measured, perplexity
from tube_lightning.report import LEVEL, finite, p_value

_LUCK = "one bank of orderings cannot tell how lucky it was"
_NO_ERROR = "the text is too little to tell errors by"
_OTHER_PARTS = "not all of the text was scored, and by other tokens other parts of it"


def compare_runs(names: Sequence[str], regime: str | None = None) -> RunComparison:
    """Compare runs, given as DIR or DIR:REGIME, with the first of them on the text they share."""
    runs = open_runs(names, regime)
    pairing = pairing_of(runs)
    sums = _shared_sums(runs, pairing)
    entrants = list_entrants(runs, sums)
    per_byte = pairing == "documents"
    entries = [_describe(entrant, entrants[0], per_byte) for entrant in entrants]
    documents = sums[0].documents
    return {
        "schema_version": SCHEMA_VERSION,
        "unit": "bits_per_byte" if per_byte else "nats_per_token",
        "paired_by": pairing,
        "sequences": None if per_byte else len(sums[0].sequences.numbers),
        "documents": None if documents is None else len(documents.numbers),
        "source": runs[0].record.data["source"],
        "entries": entries,
        "notes": list_notes(runs, entrants, entries, pairing),
    }


def _shared_sums(runs: list[ComparedRun], pairing: Pairing) -> list[RunSums]:
    """Sum every run over what all have: sequences of the same tokens, else documents."""
    if pairing == "sequences":
        common = _common([run.parts.sequences() for run in runs])
        if not len(common):
            raise ValueError("directories: expected runs with common sequences, got none in all")
        return [sum_run(run, common) for run in runs]
    sums = [sum_run(run) for run in runs]
    for run, found in zip(runs, sums, strict=True):
        for what, known in (("documents", found.documents), ("bytes", found.has_bytes or None)):
            if known is None:
                raise ValueError(
                    f"{run.directory}: expected {what} of every token, by which runs with other "
                    "tokens are compared, got none"
                )
    common = _common([found.documents.numbers for found in sums if found.documents is not None])
    if not len(common):
        raise ValueError("directories: expected runs with common documents, got none in all")
    return [found.keep_documents(common) for found in sums]


def _common(numbers: list[Int64[Tensor, " _"]]) -> Int64[Tensor, " pieces"]:
    common = numbers[0]
    for more in numbers[1:]:
        common = common[torch.isin(common, more)]
    return common


def _describe(entrant: Entrant, first: Entrant, per_byte: bool) -> ComparedEntry:
    run, sums = entrant.runs[0], entrant.sums
    model = run.record.model if entrant.arm is None else run.record.arms.get(entrant.arm, {})
    has_upper = entrant.upper is not None
    return {
        "label": entrant.label,
        "kind": "model" if entrant.arm is None else "arm",
        "directories": [str(run.directory) for run in entrant.runs],
        "checkpoint": model.get("checkpoint"),
        "block_size": run.record.model["block_size"] if entrant.arm is None else None,
        "regime": run.regime if entrant.arm is None else None,
        "upper": _value(entrant, str(entrant.upper), per_byte) if has_upper else None,
        "lower": _value(entrant, entrant.lower, per_byte),
        "tokens": int(sums.sequences.sums.tokens.sum()),
        "bytes": round(float(sums.sequences.sums.nats[-1].sum())) if sums.has_bytes else None,
        "against_first": None if entrant is first else _judge(entrant, first, per_byte),
    }


def _value(entrant: Entrant, name: str, per_byte: bool) -> ComparedValue:
    nats = None if per_byte else measure_rate(entrant, name, per_byte=False)
    bits = measure_rate(entrant, name, per_byte=True) if entrant.sums.has_bytes else None
    estimator = ESTIMATORS.get(name)
    ppl_ends = None if nats is None else [perplexity(n) for n in reversed(_interval(nats))]
    return {
        "name": name,
        "side": None if estimator is None else estimator.side,
        "nats_per_token": None if nats is None else finite(nats.nats_per_token),
        "ppl": None if nats is None else finite(nats.ppl),
        "ppl_ci95": _all_finite(ppl_ends),
        "bits_per_byte": None if bits is None else finite(-bits.nats_per_token / math.log(2)),
        "bits_per_byte_ci95": None
        if bits is None
        else _all_finite([-n / math.log(2) for n in reversed(_interval(bits))]),
    }


def _judge(ours: Entrant, first: Entrant, per_byte: bool) -> AgainstFirst:
    """Test both directions by the ends of the brackets that must be apart."""
    low = high = None
    low_names, high_names = (ours.lower, first.upper), (ours.upper, first.lower)
    if first.upper is not None:
        low = measure_difference((ours, ours.lower), (first, first.upper), per_byte=per_byte)
    if ours.upper is not None:
        high = measure_difference((ours, ours.upper), (first, first.lower), per_byte=per_byte)
    p_better, p_worse = p_value(low, sign=1), p_value(high, sign=-1)
    word: Word = "not distinguishable"
    reason = None
    if ours.depends_on_luck or first.depends_on_luck:
        word, reason = "not judged", _LUCK
    elif per_byte and not all(run.is_whole for run in (*ours.runs, *first.runs)):
        word, reason = "not judged", _OTHER_PARTS
    elif math.isnan(p_better) and math.isnan(p_worse):
        word, reason = "not judged", _NO_ERROR
    elif p_better < LEVEL:
        word = "better"
    elif p_worse < LEVEL:
        word = "worse"
    return {
        "at_least": _difference(low, low_names, per_byte),
        "at_most": _difference(high, high_names, per_byte),
        "p_better": finite(p_better),
        "p_worse": finite(p_worse),
        "word": word,
        "reason": reason,
    }


def _difference(
    found: Measured | None, names: tuple[str | None, str | None], per_byte: bool
) -> ComparedDifference | None:
    if found is None:
        return None
    scale = math.log(2) if per_byte else 1.0
    return {
        "by": [str(name) for name in names],
        "value": finite(found.nats_per_token / scale),
        "ci95": _all_finite([end / scale for end in _interval(found)]),
        "standard_error": finite(found.standard_error / scale),
        "degrees_of_freedom": finite(found.error.degrees),
        "error_method": found.error.method,
    }


def _interval(value: Measured) -> list[float]:
    return [value.nats_per_token - value.margin, value.nats_per_token + value.margin]


def _all_finite(values: list[float] | None) -> list[float] | None:
    return values if values is not None and all(map(math.isfinite, values)) else None
