"""Training of the networks that we evaluate."""

from tube_lightning.training.fit import train_to_end, training_callbacks
from tube_lightning.training.module import DenoiserTraining, make_network
from tube_lightning.training.objectives import Cost, negative_log_likelihood, nelbo
from tube_lightning.training.schedules import constant_after_warmup, cosine_after_warmup

__all__ = [
    "Cost",
    "DenoiserTraining",
    "constant_after_warmup",
    "cosine_after_warmup",
    "make_network",
    "negative_log_likelihood",
    "nelbo",
    "train_to_end",
    "training_callbacks",
]
