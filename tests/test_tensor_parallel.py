"""One copy of a network for several processes: the numbers of one process."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.decoders import LAYOUTS, MASK, random_ids, reference, save_layout
from tests.evaluation_runs import QUIET, ROOT, results
from tests.ranks import on_ranks
from tube_lightning.checkpoints import load_block_model
from tube_lightning.networks import model_identity
from tube_lightning.scoring import conditional_table


def save_tiny(folder, name="a2d-bd3lm"):
    """A tiny Qwen3 whose four heads of keys four processes can share."""
    sizes = {"num_key_value_heads": 4}
    LAYOUTS[name][1].update(sizes)
    try:
        return save_layout(name, folder, reference(name)) | {"block_size": 4}
    finally:
        LAYOUTS[name][1].update({"num_key_value_heads": 2})


@pytest.mark.parametrize("world_size", [2, 4])
def test_processes_together_have_the_numbers_of_one(tmp_path, world_size):
    options = save_tiny(tmp_path / "model")
    tokens = random_ids(2, 12)
    alone = load_block_model(tmp_path / "model", **options)
    expected = conditional_table(alone, tokens)

    def score(rank):
        del rank
        model = load_block_model(tmp_path / "model", **options, tensor_parallel=world_size)
        part = model.network.model.layers[0].mlp.up_proj.weight.to_local()
        return conditional_table(model, tokens), tuple(part.shape), model_identity(model)

    found = on_ranks(world_size, score, tmp_path / "ranks")
    for table, shape, identity in found:
        torch.testing.assert_close(table, expected, atol=1e-5, rtol=0)
        assert shape == (96 // world_size, 48)
        assert identity == found[0][2]


def test_processes_must_be_there(tmp_path):
    options = save_tiny(tmp_path)
    with pytest.raises(ValueError, match="expected 2 processes or more that were started together"):
        load_block_model(tmp_path, **options, tensor_parallel=2)


@pytest.mark.slow
def test_groups_are_dealt_different_batches(tmp_path):
    options = save_tiny(tmp_path / "model")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, MASK - 3, (6, 12)))
    command = [
        str(ROOT / "evaluate.py"),
        f"model.checkpoint={tmp_path / 'model'}",
        *(f"model.{key}={value}" for key, value in options.items()),
        "data=tokens",
        f"data.path={tmp_path / 'ids.npy'}",
        "trainer.accelerator=cpu",
        "batch_size=1",
    ]
    together = ["trainer.devices=4", "model.tensor_parallel=2", "output_dir=groups"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    for start in (
        [*torchrun, *command, *together],
        [sys.executable, *command, "output_dir=alone"],
    ):
        environment = os.environ | QUIET
        done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    alone, groups = (results(tmp_path / name) for name in ("alone", "groups"))
    assert groups["counts"] == alone["counts"]
    for regime, values in alone["regimes"].items():
        same = groups["regimes"][regime]["exact"]["ppl"]
        assert same == pytest.approx(values["exact"]["ppl"], rel=1e-5)
