"""Where curves go besides the run's directory."""

from collections.abc import Iterable

from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

_NO_LOGIN_NEEDED = ("offline", "dryrun", "disabled")


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
