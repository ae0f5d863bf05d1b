"""The moving average of weights, against its recursion in plain Python."""

import itertools
import signal
from functools import partial

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import nn

from tests.networks import random_network
from tube_lightning.cluster import StopWhenAsked
from tube_lightning.training import DenoiserTraining, adamw, nelbo, training_callbacks
from tube_lightning.training.averaging import AverageWeights

# Lightning 2.6 makes torch 2.13 say so whenever it is given a loader.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
]

START = 2.0
SLOPES = [0.5, -3.0, 1.25, 4.0, -0.75, 2.0, 8.0, -1.0, 0.25, -2.5, 3.0, 1.0]
TOLERANCE = 1e-12  # of float64 numbers of size 10


def oracle(decay, slopes_a_step=1):
    """The weight and its average, after each step of descent along the mean slope."""
    weight = average = START
    after = []
    for n, first in enumerate(range(0, len(SLOPES), slopes_a_step), start=1):
        weight -= sum(SLOPES[first : first + slopes_a_step]) / slopes_a_step
        share = min(decay, (1 + n) / (10 + n))
        average = share * average + (1 - share) * weight
        after.append((weight, average))
    return after


class Slide(L.LightningModule):
    """One weight that goes down given slopes; it writes down what it was in each batch."""

    def __init__(self, decay, terminate_at=None):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(START, dtype=torch.float64))
        self.decay, self.terminate_at = decay, terminate_at
        self.trained, self.validated = [], []

    def configure_callbacks(self):
        return [AverageWeights(self.decay)]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def training_step(self, batch, batch_idx):
        self.trained.append(self.weight.item())
        if self.global_step + 1 == self.terminate_at:
            signal.raise_signal(signal.SIGTERM)
        return self.weight * SLOPES[batch_idx]

    def validation_step(self, batch):
        self.validated.append(self.weight.item())

    def train_dataloader(self):
        return torch.utils.data.DataLoader(range(len(SLOPES)))

    def val_dataloader(self):
        return torch.utils.data.DataLoader(range(1))


def fit(module, callbacks=(), ckpt_path=None, **options):
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **({"max_epochs": 1, "num_sanity_val_steps": 0} | options),
    )
    trainer.fit(module, ckpt_path=ckpt_path, weights_only=True)


def newest(folder, every_n_steps):
    """What train.py has of callbacks, without a logger's."""
    callbacks = training_callbacks(str(folder), every_n_steps)
    return [c for c in callbacks if isinstance(c, ModelCheckpoint | StopWhenAsked)]


def near(values):
    return pytest.approx(values, abs=TOLERANCE)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9999])
@pytest.mark.parametrize("slopes_a_step", [1, 3])
def test_the_average_follows_every_step_of_the_optimizer(decay, slopes_a_step):
    """Batches whose gradients are only gathered move nothing; validation sees the average."""
    module = Slide(decay)
    fit(module, val_check_interval=1, accumulate_grad_batches=slopes_a_step)
    after = oracle(decay, slopes_a_step)
    weights, averages = zip(*after, strict=True)
    before = [START, *weights[:-1]]
    assert module.trained == near([w for w in before for _ in range(slopes_a_step)])
    seen = [START, *averages]
    assert module.validated == near([seen[(b + 1) // slopes_a_step] for b in range(len(SLOPES))])
    assert module.weight.item() == near(averages[-1])


def test_the_first_step_does_not_replace_the_initial_weight():
    module = Slide(0.9)
    fit(module, max_steps=1)
    assert module.weight.item() == near(2 / 11 * START + 9 / 11 * (START - SLOPES[0]))


@pytest.mark.parametrize("every_n_steps", [5, 100])
def test_a_checkpoint_has_both_and_the_count(tmp_path, every_n_steps):
    """The one at a step, and the one at the end of training if there was none before."""
    fit(Slide(0.7), newest(tmp_path, every_n_steps))
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    step = content["global_step"]
    assert step == {5: 10, 100: len(SLOPES)}[every_n_steps]
    weight, average = oracle(0.7)[step - 1]
    assert content["current_model_state"]["weight"].item() == near(weight)
    assert content["state_dict"]["weight"].item() == near(average)
    assert content["averaging_state"]["n_averaged"] == step + 1


@pytest.mark.parametrize("step", [1, 4, 6, 11, len(SLOPES)])
def test_a_terminated_run_resumes_to_the_same_bits(tmp_path, step):
    """The checkpoint at SIGTERM has the average of its own step, also where others are due."""
    options = {"val_check_interval": 5}
    whole, stopped, resumed = Slide(0.7), Slide(0.7, terminate_at=step), Slide(0.7)
    fit(whole, **options)
    with pytest.raises(SIGTERMException):
        fit(stopped, newest(tmp_path, every_n_steps=3), **options)
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    weight, average = oracle(0.7)[step - 1]
    assert content["global_step"] == step
    assert content["current_model_state"]["weight"].item() == near(weight)
    assert content["state_dict"]["weight"].item() == near(average)
    fit(resumed, newest(tmp_path, every_n_steps=3), tmp_path / "last.ckpt", **options)
    assert stopped.trained + resumed.trained == whole.trained
    assert stopped.validated + resumed.validated == whole.validated
    assert torch.equal(resumed.weight, whole.weight)


def test_a_finished_run_has_the_average_again(tmp_path):
    first, again = Slide(0.7), Slide(0.7)
    for module, start in ((first, None), (again, tmp_path / "last.ckpt")):
        fit(module, newest(tmp_path, every_n_steps=5), start, max_steps=10, max_epochs=-1)
    assert again.trained == []
    assert torch.equal(again.weight, first.weight)
    assert again.weight.item() == near(oracle(0.7)[9][1])


def test_the_average_has_the_precision_of_the_weights(tmp_path):
    module = Slide(0.5)
    fit(module, newest(tmp_path, every_n_steps=5), precision="bf16-true", val_check_interval=1)
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert content["state_dict"]["weight"].dtype == torch.bfloat16
    assert content["current_model_state"]["weight"].dtype == torch.bfloat16
    _, averages = zip(*oracle(0.5), strict=True)
    assert module.validated == pytest.approx(averages, rel=0.02, abs=0.05)
    assert len(set(itertools.pairwise(module.validated))) == len(SLOPES) - 1


def denoiser(ema_decay):
    return DenoiserTraining(
        random_network(4),
        nelbo,
        partial(adamw, learning_rate=1e-3),
        lambda step: 1.0,
        ema_decay=ema_decay,
    )


def test_training_brings_its_average():
    (callback,) = denoiser(0.25).configure_callbacks()
    assert isinstance(callback, AverageWeights)
    assert callback.decay == 0.25


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_is_checked(decay):
    with pytest.raises(ValueError, match=f"ema_decay: expected 0 <= ema_decay < 1, got {decay}"):
        denoiser(decay)
