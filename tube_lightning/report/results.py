"""What is concluded of a measured run: the content of ``results.json``."""

from dataclasses import asdict, replace

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import CorpusCounts, RegimeValues
from tube_lightning.regimes import Regime
from tube_lightning.report.estimates import estimate, perplexity_bias, regime_estimates
from tube_lightning.report.paper_comparison import compare_with_paper
from tube_lightning.report.schema import SCHEMA_VERSION, Estimate, Results
from tube_lightning.report.verdict import Verdict
from tube_lightning.rundir import RunRecord
from tube_lightning.scores import ARM, ARM_FT


def conclude(
    record: RunRecord,
    regimes: dict[str, RegimeValues],
    counts: CorpusCounts,
    settings: EstimatorSettings,
    num_orderings: int | None = None,
) -> Results:
    """Describe every estimate, compare with the paper if the run names a table, and judge.

    ``num_orderings`` are those that were used, where not all of the run's were.
    """
    estimates = {name: regime_estimates(r, counts.bytes) for name, r in regimes.items()}
    arms = _arm_estimates(next(iter(regimes.values())), counts.bytes)
    protocol = replace(
        record.protocol, num_orderings=num_orderings or record.protocol.num_orderings
    )
    verdict = Verdict.of(regimes, counts)
    tails = {name: regime.tail for name, regime in regimes.items() if regime.tail is not None}
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict.sentence(),
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
        "counts": {
            "sequences": counts.sequences,
            "documents": counts.documents,
            "blocks": counts.blocks,
            "tokens": counts.tokens,
            "bytes": counts.bytes,
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


def _arm_estimates(regime: RegimeValues, num_bytes: int | None) -> dict[str, Estimate]:
    arms = regime.quantities.arms
    return {arm.name: estimate(arm, regime.values[arm.name], num_bytes) for arm in arms}
