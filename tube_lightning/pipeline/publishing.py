"""Results and figures to Weights & Biases."""

from collections.abc import Iterable
from pathlib import Path

from lightning.pytorch.loggers import Logger, WandbLogger

from tube_lightning.evaluator import curve_name
from tube_lightning.report import Estimate, Results
from tube_lightning.rundir import FIGURES_FOLDER
from tube_lightning.scores import ARM, ARM_FT

_COLUMNS = ("regime", "estimator", "ppl", "ci95_low", "ci95_high")
_RATES = ("nats_per_token", "bits_per_byte")
_GUARANTEES = ("side", "bound_preserving", "wrong_side", "violated")


def publish(loggers: Iterable[Logger], results: Results, directory: Path) -> None:
    """Send the final table and the figures to those loggers that can show them. For rank 0."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_hyperparams(results["config"])
            logger.experiment.summary.update(_summary(results))
            logger.log_table("results", [*_COLUMNS, *_RATES, *_GUARANTEES], _rows(results))
            for figure in sorted(directory.glob(f"{FIGURES_FOLDER}/*.png")):
                logger.log_image(f"figures/{figure.stem}", [str(figure)])


def _summary(results: Results) -> dict[str, object]:
    """Name final perplexities as their curves are: these replace the curves' last points."""
    final: dict[str, object] = {
        curve_name(regime, name): value["ppl"]
        for regime, estimates in results["regimes"].items()
        for name, value in estimates.items()
    }
    final |= {curve_name("", name): arm["ppl"] for name, arm in _arms(results)}
    return final | {"verdict": results["verdict"], **results["counts"]}


def _rows(results: Results) -> list[list[object]]:
    """Lay out one row for each regime and estimator, and one for each ARM."""
    rows = [
        _row(regime, name, value)
        for regime, estimates in results["regimes"].items()
        for name, value in estimates.items()
    ]
    return rows + [_row(name, "exact", arm) for name, arm in _arms(results)]


def _arms(results: Results) -> list[tuple[str, Estimate]]:
    found = ((ARM, results["arm"]), (ARM_FT, results["arm_ft"]))
    return [(name, arm) for name, arm in found if arm is not None]


def _row(regime: str, name: str, value: Estimate) -> list[object]:
    low, high = value["ci95"] or (None, None)
    rates = (value["nats_per_token"], value["bits_per_byte"])
    guarantees = (
        value["side"],
        value["bound_preserving"],
        value["wrong_side"],
        value["violated"],
    )
    return [regime, name, value["ppl"], low, high, *rates, *guarantees]
