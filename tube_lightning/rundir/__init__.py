"""Run directories: the names in them, their record, and one configuration each."""

from tube_lightning.rundir.claims import (
    claim_directory,
    flat_settings,
    read_claim,
    release_directory,
)
from tube_lightning.rundir.names import (
    FIGURES_FOLDER,
    KEPT_MODELS_FOLDER,
    LATEX_FILE,
    MARKDOWN_FILE,
    RESULTS_FILE,
    SCORES_FOLDER,
    SHARED_TEXT_FILE,
)
from tube_lightning.rundir.record import RunRecord, record_budget, recorded_budgets

__all__ = [
    "FIGURES_FOLDER",
    "KEPT_MODELS_FOLDER",
    "LATEX_FILE",
    "MARKDOWN_FILE",
    "RESULTS_FILE",
    "SCORES_FOLDER",
    "SHARED_TEXT_FILE",
    "RunRecord",
    "claim_directory",
    "flat_settings",
    "read_claim",
    "record_budget",
    "recorded_budgets",
    "release_directory",
]
