"""The stages of a training run: what a start leaves open, and what a later one may change."""

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import MISSING

from tube_lightning.rundir import flat_settings, read_claim

LONGEST_WARMUP = 2500
"""Steps, as in BD3-LM's code."""
LONGEST_HORIZON = 10_000
"""Steps that the average of weights reaches back at most: a decay of 0.9999."""

MAY_CHANGE = (
    "output_dir",
    "trainer.default_root_dir",
    "trainer.max_*",
    "schedule.total_steps",
    "module.schedule.total_steps",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy*",
    "trainer.plugins*",
    "logger.*",
    "trainer.logger.*",
    "trainer.log_every_n_steps",
    "trainer.val_check_interval",
    "trainer.limit_val_batches",
    "trainer.enable_progress_bar",
    "trainer.callbacks.*",
    "checkpoint_every",
    "keep_every",
)
"""How long, where, and what is written on the way; what is learned from what stays as it was."""


def warmup_steps(max_steps: int) -> int:
    """Warm up for at most a tenth of the run (-1: a run without an end).

    >>> warmup_steps(60), warmup_steps(1_000_000), warmup_steps(-1)
    (6, 2500, 2500)
    """
    return LONGEST_WARMUP if max_steps < 0 else min(LONGEST_WARMUP, max_steps // 10)


def ema_decay(max_steps: int) -> float:
    """Average the weights over at most the last tenth of the run, and 10,000 steps.

    >>> ema_decay(60), ema_decay(1_000_000), ema_decay(5)
    (0.833333, 0.9999, 0.0)
    """
    horizon = LONGEST_HORIZON if max_steps < 0 else min(LONGEST_HORIZON, max(max_steps // 10, 1))
    return round(1 - 1 / horizon, 6)


_OPEN: dict[str, Callable[[int], int | float]] = {
    "schedule.warmup_steps": warmup_steps,
    "module.ema_decay": ema_decay,
}
"""Settings that are null unless users give them, and how they follow from the number of steps."""


def check_texts(config: Mapping[str, Any]) -> None:
    """Refuse a configuration without the files that it is to learn from, or to validate on."""
    missing = [
        key
        for key, value in flat_settings(config).items()
        if value == MISSING and key.startswith(("data.train.", "data.validation."))
    ]
    if missing:
        raise ValueError(
            f"{' and '.join(missing)}: expected files, folders or patterns, got none "
            "(data.path is for evaluate.py)"
        )


def settle(config: Mapping[str, Any]) -> dict[str, int | float]:
    """Return what a configuration leaves open, by key.

    A run that is continued or extended keeps the values of its first start, which are in its
    record: they would be others for another number of steps.
    """
    ours, there = flat_settings(config), flat_settings(read_claim(config["output_dir"]) or {})
    settled = {}
    for key, derive in _OPEN.items():
        if key in ours and ours[key] is None:
            before = there.get(key)
            settled[key] = derive(ours["trainer.max_steps"]) if before is None else before
    return settled


def tell_extension(
    before: Mapping[str, Any], now: Mapping[str, Any], schedule: Callable[[int], float]
) -> str | None:
    """Say what another end does to a schedule that leads to it; None where nothing changes."""
    key = "schedule.total_steps"
    old, new = flat_settings(before).get(key), flat_settings(now).get(key)
    if old is None or new is None or old == new:
        return None
    return (
        f"The schedule ends at step {new:,} instead of {old:,}: at step {min(old, new):,} the "
        f"learning rate is {schedule(min(old, new)):.0%} of its peak, and falls to 0 from there."
    )
