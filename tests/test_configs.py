"""Every YAML composes and instantiates."""

import inspect
from pathlib import Path

import hydra
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from tube_lightning.sampling import write_samples
from tube_lightning.training import settle

CONFIGS = Path(__file__).parent.parent / "configs"
GROUPS = {
    "train": ("network", "data", "objective", "noise", "optimizer", "schedule", "logger"),
    "evaluate": ("data", "protocol", "logger"),
}


def options(group):
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def compose(name, *overrides):
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose(name, list(overrides))
    OmegaConf.resolve(config)
    return config


CHOICES = [
    (name, f"{group}={option}")
    for name, groups in GROUPS.items()
    for group in groups
    for option in options(group)
]


@pytest.mark.parametrize(("name", "choice"), [*CHOICES, *((n, f"trainer={n}") for n in GROUPS)])
def test_every_choice_composes(name, choice):
    compose(name, choice, "output_dir=anywhere")


def test_no_choice_is_left_out():
    """A trainer is that of one script; experiments are in ``test_experiments.py``."""
    tested = {group for groups in GROUPS.values() for group in groups} | {"trainer", "experiment"}
    assert tested == {path.name for path in CONFIGS.iterdir() if path.is_dir()}
    assert options("trainer") == sorted(GROUPS)


@pytest.mark.parametrize("objective", options("objective"))
def test_every_objective_instantiates(objective, tmp_path):
    config = compose("train", f"objective={objective}", f"output_dir={tmp_path}")
    for key, value in settle(OmegaConf.to_container(config)).items():
        OmegaConf.update(config, key, value)
    module = instantiate(config.module)
    assert module.network.config.causal == (objective == "arm")
    assert module.network.config.cross_attn == (objective == "bd3lm")
    trainer = instantiate(config.trainer, accelerator="cpu", devices=1)
    assert trainer.max_steps == config.trainer.max_steps


def test_sampling_composes_with_every_argument_of_its_function():
    config = compose("sample")
    arguments = set(inspect.signature(write_samples).parameters)
    assert set(config) == arguments | {"_target_"}
