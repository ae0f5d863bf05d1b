"""Where curves and results go besides the run's directory."""

from collections.abc import Iterable
from pathlib import Path

from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from tube_lightning.report import FIGURES_FOLDER, Estimate, Results

_NO_LOGIN_NEEDED = ("offline", "dryrun", "disabled")
_COLUMNS = ("regime", "estimator", "ppl", "ci95_low", "ci95_high", "nats_per_token")
_GUARANTEES = ("side", "bound_preserving", "violated")


def wandb_logger(
    project: str,
    save_dir: str,
    name: str | None = None,
    group: str | None = None,
    id: str | None = None,
) -> WandbLogger:
    """Log to Weights & Biases, or raise now what would stop the run later.

    ``id`` names the W&B run to continue; without it every start is a run of its own. In the
    environment, WANDB_MODE may say offline or disabled.
    """
    _check_login()
    return WandbLogger(project=project, save_dir=save_dir, name=name, group=group, id=id)


@rank_zero_only
def _check_login() -> None:
    """Raise if the process that logs needs a login and has none."""
    import wandb  # slow to import: not for logger=csv

    if wandb.setup().settings.mode in _NO_LOGIN_NEEDED:
        return
    if not wandb.login(prompt=False, verify=False):
        raise ValueError(
            "logger: expected a login to Weights & Biases for logger=wandb, got none; run `wandb "
            "login` or set WANDB_API_KEY, or set WANDB_MODE=offline, or choose logger=csv"
        )


def plot_against(loggers: Iterable[Logger], quantity: str) -> None:
    """Make one of the logged quantities the x axis of all curves. For rank 0."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.define_metric(quantity)
            logger.experiment.define_metric("*", step_metric=quantity)


def publish(loggers: Iterable[Logger], results: Results, directory: Path) -> None:
    """Send the final table and the figures to those loggers that can show them. For rank 0."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_hyperparams(results["config"])
            logger.experiment.summary.update(_summary(results))
            logger.log_table("results", [*_COLUMNS, *_GUARANTEES], _rows(results))
            for figure in sorted(directory.glob(f"{FIGURES_FOLDER}/*.png")):
                logger.log_image(f"figures/{figure.stem}", [str(figure)])


def _summary(results: Results) -> dict[str, object]:
    """Name final perplexities as their curves are: these replace the curves' last points."""
    final: dict[str, object] = {
        f"{regime}/{name}": value["ppl"]
        for regime, estimates in results["regimes"].items()
        for name, value in estimates.items()
    }
    for name, arm in (("arm", results["arm"]), ("arm_ft", results["arm_ft"])):
        if arm is not None:
            final[name] = arm["ppl"]
    return final | {"verdict": results["verdict"], **results["counts"]}


def _rows(results: Results) -> list[list[object]]:
    """Lay out one row for each regime and estimator, and one for each ARM."""
    rows = [
        _row(regime, name, value)
        for regime, estimates in results["regimes"].items()
        for name, value in estimates.items()
    ]
    arms = (("arm", results["arm"]), ("arm_ft", results["arm_ft"]))
    return rows + [_row(name, "exact", arm) for name, arm in arms if arm is not None]


def _row(regime: str, name: str, value: Estimate) -> list[object]:
    low, high = value["ci95"] or (None, None)
    guarantees = (value["side"], value["bound_preserving"], value["violated"])
    return [regime, name, value["ppl"], low, high, value["nats_per_token"], *guarantees]
