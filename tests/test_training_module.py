"""A network in training: noise of its own for every batch, and models kept along the way."""

import json
from dataclasses import replace
from functools import partial

import lightning as L
import pytest
import torch
from safetensors.torch import load_file

from tests.networks import random_network, random_tokens
from tube_lightning.checkpoints import read_checkpoint
from tube_lightning.data import TokenDataModule, TokenSequences
from tube_lightning.networks import DiT
from tube_lightning.training import DenoiserTraining, muon, nelbo
from tube_lightning.training.kept_models import KeepModels
from tube_lightning.training.noise import Noise

pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


class Remember:
    """The objective, and the seeds of the noise that it was given."""

    def __init__(self):
        self.seeds = []

    def __call__(self, network, tokens, generator):
        self.seeds.append(generator.initial_seed())
        return nelbo(network, tokens, generator, copies=2)


def fit(objective=nelbo, callbacks=(), batch_size=2, **options):
    start = random_network(4)
    network = DiT(replace(start.config, dropout=0.0))
    network.load_state_dict(start.state_dict())
    module = DenoiserTraining(
        network,
        objective,
        partial(muon, learning_rate=0.01),
        lambda step: 1.0,
        ema_decay=0.9,
    )
    text = TokenSequences(random_tokens(12), "random", "none")
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        max_epochs=-1,
        callbacks=list(callbacks),
        **options,
    )
    trainer.fit(module, TokenDataModule(lambda: text, batch_size=batch_size))
    return module


@pytest.mark.parametrize("gathered", [1, 2, 3])
def test_every_batch_has_noise_of_its_own(gathered):
    """Also those whose gradients are gathered for one step; over the end of an epoch, too."""
    remember = Remember()
    fit(remember, max_steps=12 // gathered, accumulate_grad_batches=gathered)
    assert len(remember.seeds) == 12
    assert len(set(remember.seeds)) == 12


def hide_everything(scored, batch, copies, generator):
    hidden = scored[None, :, None].expand(batch, -1, copies, -1)
    return Noise(hidden, torch.ones(batch, len(scored), copies))


def test_gathered_batches_are_one_larger_batch():
    """Of an objective without noise: three batches of 2, or one of 6."""
    objective = partial(nelbo, hide=hide_everything)
    gathered = fit(objective, max_steps=2, accumulate_grad_batches=3, gradient_clip_val=1.0)
    whole = fit(objective, max_steps=2, batch_size=6, gradient_clip_val=1.0)
    for one, other in zip(gathered.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("gathered", [1, 2])
def test_models_are_kept_with_what_they_cost(tmp_path, gathered):
    keep = KeepModels(str(tmp_path), every_n_steps=2)
    module = fit(callbacks=[keep], max_steps=5, accumulate_grad_batches=gathered)
    costs = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("models/*.json"))]
    assert [cost["step"] for cost in costs] == [2, 4, 5]
    assert [cost["sequences"] for cost in costs] == [2 * gathered * s for s in (2, 4, 5)]
    assert 0 < costs[0]["cpu_minutes"] < costs[1]["cpu_minutes"] < costs[2]["cpu_minutes"]
    last = read_checkpoint(tmp_path / "models/step_5").state_dict()
    for name, tensor in module.network.state_dict().items():
        assert tensor.equal(last[name]), name  # the average weights, after the last step
    earlier = load_file(tmp_path / "models/step_2/model.safetensors")
    assert not all(earlier[f"backbone.{name}"].equal(tensor) for name, tensor in last.items())


def test_nothing_is_kept_unless_asked(tmp_path):
    fit(callbacks=[KeepModels(str(tmp_path), None)], max_steps=2)
    assert not list(tmp_path.iterdir())


def test_the_clocks_go_on_where_an_earlier_run_stopped():
    first, second = KeepModels("anywhere", None), KeepModels("anywhere", None)
    fit(callbacks=[first], max_steps=3)
    second.load_state_dict(first.state_dict())
    assert second.cpu_seconds == first.cpu_seconds > 0
    assert second.num_sequences == 6


def test_the_number_of_steps_is_checked():
    with pytest.raises(ValueError, match="keep_every: expected at least 1 step, got 0"):
        KeepModels("anywhere", 0)
