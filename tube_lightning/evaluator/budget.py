"""The token budget of a run: one for all ranks, on record, and taken up again by who continues."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tube_lightning.memory import TokenBudget
from tube_lightning.rundir import record_budget, recorded_budgets

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy


def agree_on_budget(
    strategy: "Strategy", fitting: int, asked: int | None, directory: Path | None
) -> TokenBudget:
    """Return the budget that all ranks begin with, and put it on record: a collective.

    It is what was ``asked`` for; else what the run in the ``directory`` had last on such a device,
    in the words of rank 0; else what fits on the smallest device.
    """
    kind = strategy.root_device.type
    known = recorded_budgets(directory).get(kind, ()) if directory is not None else ()
    before: int | None = strategy.broadcast(known[-1] if known else None)
    smallest = torch.tensor(fitting, device=strategy.root_device)
    smallest = strategy.reduce(smallest, reduce_op="min")
    tokens = next(t for t in (asked, before, int(smallest)) if t is not None)
    if directory is not None and strategy.is_global_zero:
        record_budget(directory, kind, tokens)
    return TokenBudget(tokens)
