"""evaluate.py, train.py and sample.py on a device that is not there, with and without float64."""

import runpy
import sys

import pyarrow.parquet as pq
import pytest
import torch
from evaluation_runs import ROOT, run_here, values, write_tokens
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from pretend_device import (
    PRETEND,
    both_kinds,  # noqa: F401 (a fixture)
    same_arithmetic,  # noqa: F401
)
from safetensors.torch import load_file

pytestmark = [
    pytest.mark.usefixtures("both_kinds"),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


class PretendAccelerator(Accelerator):
    """What Lightning asks of a device."""

    def setup_device(self, device):
        assert device == PRETEND

    def teardown(self):
        pass

    @staticmethod
    def parse_devices(devices):
        return 1

    @staticmethod
    def get_parallel_devices(devices):
        return [PRETEND]

    @staticmethod
    def auto_device_count():
        return 1

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def name():
        return "pretend"


AcceleratorRegistry.register("pretend", PretendAccelerator, override=True)
StrategyRegistry.register("pretend", SingleDeviceStrategy, override=True, device=PRETEND)
HERE = ["trainer.accelerator=cpu", "trainer.strategy=auto", "output_dir=here"]
THERE = ["trainer.accelerator=pretend", "trainer.strategy=pretend", "output_dir=there"]


def run_script(monkeypatch, folder, name, *options):
    """Run a script in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name, *options])
    runpy.run_path(str(ROOT / name), run_name="__main__")


def test_evaluate_has_the_results_of_the_cpu(tmp_path, monkeypatch):
    options = [*write_tokens(tmp_path, 5), "batch_size=2"]
    for where in (HERE, THERE):
        run_here(monkeypatch, tmp_path, *options, *where)
    assert values(tmp_path / "there") == values(tmp_path / "here")


@pytest.mark.slow
def test_the_papers_protocol_continues_on_the_device(tmp_path, monkeypatch):
    """The first batch is on disk, and is counted by the second run."""
    options = [*write_tokens(tmp_path, 5), "batch_size=2", "protocol=paper"]
    for where in (HERE, [*THERE, "num_batches=1"], THERE):
        run_here(monkeypatch, tmp_path, *options, *where)
    assert values(tmp_path / "there") == values(tmp_path / "here")


@pytest.mark.parametrize("objective", ["bd3lm", "arm"])
def test_train_has_the_weights_of_the_cpu(objective, tmp_path, monkeypatch):
    options = [
        f"objective={objective}",
        "network.hidden_dim=16",
        "network.n_blocks=1",
        "network.n_heads=2",
        "network.dropout=0.1",
        "batch_size=4",
        "trainer.max_steps=3",
        "trainer.val_check_interval=2",
        "trainer.limit_val_batches=1",
        "checkpoint_every=2",
        "keep_every=2",
    ]
    run_script(monkeypatch, tmp_path, "train.py", *options, *HERE)
    run_script(monkeypatch, tmp_path, "train.py", *options, *THERE)
    found, expected = (
        load_file(tmp_path / f"{run}/model/model.safetensors") for run in ("there", "here")
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=0)


def test_sample_has_the_samples_of_the_cpu(tmp_path, monkeypatch):
    options = ["checkpoint=demo:bd3lm_l4", "tokenizer=demo", "num_sequences=3", "length=8"]
    for name, device in (("here", "cpu"), ("there", "pretend:0")):
        where = [f"device={device}", f"output={name}.parquet"]
        run_script(monkeypatch, tmp_path, "sample.py", *options, *where)
    found, expected = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("there", "here"))
    assert found == expected
