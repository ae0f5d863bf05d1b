"""Training of the networks that we evaluate."""

from tube_lightning.training.fit import train_to_end, training_callbacks
from tube_lightning.training.initial import make_network
from tube_lightning.training.module import DenoiserTraining
from tube_lightning.training.noise import hide_by_count, hide_by_time
from tube_lightning.training.objectives import Cost, negative_log_likelihood, nelbo
from tube_lightning.training.optimizers import adamw, muon
from tube_lightning.training.schedules import (
    constant_after_warmup,
    cosine_after_warmup,
    linear_after_warmup,
)
from tube_lightning.training.stages import check_texts, settle
from tube_lightning.training.whole_states import training_plugins

__all__ = [
    "Cost",
    "DenoiserTraining",
    "adamw",
    "check_texts",
    "constant_after_warmup",
    "cosine_after_warmup",
    "hide_by_count",
    "hide_by_time",
    "linear_after_warmup",
    "make_network",
    "muon",
    "negative_log_likelihood",
    "nelbo",
    "settle",
    "train_to_end",
    "training_callbacks",
    "training_plugins",
]
