"""What is concluded of a measured run: the content of ``results.json``."""

from dataclasses import asdict

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import CorpusCounts, RegimeValues
from tube_lightning.report.estimates import estimate, regime_estimates
from tube_lightning.report.paper_comparison import compare_with_paper
from tube_lightning.report.schema import SCHEMA_VERSION, Estimate, Results
from tube_lightning.report.verdict import verdict_sentence
from tube_lightning.rundir import RunRecord
from tube_lightning.scores import ARM, ARM_FT


def conclude(
    record: RunRecord,
    regimes: dict[str, RegimeValues],
    counts: CorpusCounts,
    settings: EstimatorSettings,
) -> Results:
    """Describe every estimate, compare with the paper if the run names a table, and judge."""
    estimates = {name: regime_estimates(r, counts.bytes) for name, r in regimes.items()}
    arms = _arm_estimates(next(iter(regimes.values())), counts.bytes)
    table, size = record.paper_table, record.model["block_size"]
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict_sentence(regimes),
        "regimes": estimates,
        "arm": arms.get(ARM),
        "arm_ft": arms.get(ARM_FT),
        "counts": {
            "sequences": counts.sequences,
            "blocks": counts.blocks,
            "tokens": counts.tokens,
            "bytes": counts.bytes,
            "batches": record.num_batches,
            "orderings": counts.orderings,
        },
        "tails": {name: r.tail for name, r in regimes.items() if r.tail is not None},
        "paper": compare_with_paper(table, size, estimates, arms.get(ARM), settings)
        if table
        else None,
        "estimators": dict(settings),
        "protocol": asdict(record.protocol),
        "model": dict(record.model),
        "data": dict(record.data),
        "seconds": {"scoring": counts.seconds, "report": 0.0},
        "versions": dict(record.versions),
        "config": dict(record.config),
    }


def _arm_estimates(regime: RegimeValues, num_bytes: int | None) -> dict[str, Estimate]:
    arms = regime.quantities.arms
    return {arm.name: estimate(arm, regime.values[arm.name], num_bytes) for arm in arms}
