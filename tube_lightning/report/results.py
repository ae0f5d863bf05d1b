"""What is concluded of a measured run: the content of ``results.json``."""

from dataclasses import asdict, replace

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import CorpusCounts, RegimeValues
from tube_lightning.regimes import Regime
from tube_lightning.report.estimates import (
    TextSize,
    estimate,
    perplexity_bias,
    regime_estimates,
)
from tube_lightning.report.paper_comparison import compare_with_paper
from tube_lightning.report.schema import SCHEMA_VERSION, Estimate, PerByte, Results
from tube_lightning.report.verdict import Verdict
from tube_lightning.rundir import RunRecord
from tube_lightning.scores import ARM, ARM_FT


def conclude(
    record: RunRecord,
    regimes: dict[str, RegimeValues],
    counts: CorpusCounts,
    settings: EstimatorSettings,
    num_orderings: int | None = None,
    per_byte: PerByte | None = None,
) -> Results:
    """Describe every estimate, compare with the paper if the run names a table, and judge.

    ``num_orderings`` are those that were used, where not all of the run's were; ``per_byte``
    compares with an ARM of another tokenizer.
    """
    size = TextSize(counts.bytes, _bytes_per_word(record))
    estimates = {name: regime_estimates(r, size) for name, r in regimes.items()}
    arms = _arm_estimates(next(iter(regimes.values())), size)
    protocol = replace(
        record.protocol, num_orderings=num_orderings or record.protocol.num_orderings
    )
    verdict = Verdict.of(regimes, counts)
    tails = {name: regime.tail for name, regime in regimes.items() if regime.tail is not None}
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict.sentence() if per_byte is None else per_byte["sentence"],
        "comparison": verdict.comparison(),
        "perplexity_bias": perplexity_bias(regimes, counts.blocks),
        "warnings": [
            f"{Regime.parse(name).title}: {tail['warning']}"
            for name, tail in tails.items()
            if tail["warning"]
        ],
        "regimes": estimates,
        "arm": arms.get(ARM),
        "arm_ft": arms.get(ARM_FT),
        "per_byte": per_byte,
        "counts": {
            "sequences": counts.sequences,
            "documents": counts.documents,
            "blocks": counts.blocks,
            "tokens": counts.tokens,
            "bytes": counts.bytes,
            "bytes_per_word": size.bytes_per_word,
            "batches": record.num_batches,
            "orderings": protocol.orderings_of(record.model["block_size"]),
        },
        "tails": tails,
        "paper": compare_with_paper(
            record.paper_table,
            record.model["block_size"],
            estimates,
            arms.get(ARM),
            settings,
            protocol,
        )
        if record.paper_table
        else None,
        "estimators": dict(settings),
        "protocol": asdict(protocol),
        "model": dict(record.model),
        "data": dict(record.data),
        "seconds": {"scoring": counts.seconds, "report": 0.0},
        "versions": dict(record.versions),
        "config": dict(record.config),
    }


def _bytes_per_word(record: RunRecord) -> float | None:
    num_bytes, num_words = (record.data.get(name) for name in ("text_bytes", "text_words"))
    return num_bytes / num_words if num_bytes and num_words else None


def _arm_estimates(regime: RegimeValues, size: TextSize) -> dict[str, Estimate]:
    arms = regime.quantities.arms
    return {arm.name: estimate(arm, regime.values[arm.name], size) for arm in arms}
