"""Every family of diffusion decoders from its command to a report."""

import math

import numpy as np
import pytest
import torch

from tests.decoders import FIXTURES, GOLDEN, LAYOUTS, save_layout
from tests.evaluation_runs import results, run_here
from tube_lightning import evaluate
from tube_lightning.checkpoints import load_block_model
from tube_lightning.data import TokenSequences
from tube_lightning.protocol import Protocol

LENGTH = 10


def command(tmp_path, name):
    """The options of evaluate.py for a folder of the family and some token ids."""
    if name in GOLDEN:
        folder, options = FIXTURES / name, GOLDEN[name]
    else:
        folder = tmp_path / name
        options = save_layout(name, folder)
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 58, (3, LENGTH)))
    return [
        f"model.checkpoint={folder}",
        *(f"model.{key}={value}" for key, value in options.items()),
        "data=tokens",
        f"data.path={tmp_path / 'ids.npy'}",
        "trainer.accelerator=cpu",
        "protocol.num_orderings=2",
        f"output_dir={tmp_path / 'run'}",
    ]


QUICK = ("sdar", "llada", "fast_dllm_v2")
FAMILIES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in (*GOLDEN, *LAYOUTS)
]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_command_ends_in_a_report(monkeypatch, tmp_path, name):
    run_here(monkeypatch, tmp_path, *command(tmp_path, name))
    report = results(tmp_path / "run")
    assert report["counts"]["tokens"] == 3 * (LENGTH - 1)
    constrained = name == "fast_dllm_v2"
    any_order = report["regimes"]["ao_arm_first" if constrained else "ao_arm"]
    assert 10 < any_order["elbo_k"]["ppl"] < 1e5
    small_blocks = name in ("sdar", "sdar-moe", "llada2_moe", "fast_dllm_v2", "a2d-bd3lm")
    assert ("exact" in any_order) == (small_blocks or name in ("a2d-qwen2", "nemotron"))
    assert (tmp_path / "run" / "table.md").is_file()


def test_documents_of_any_length_in_one_block():
    """Each has the value that it has alone: nothing is after its end."""
    tokens, lengths = torch.zeros(2, 9, dtype=torch.int64), torch.tensor([9, 6])
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.arange(3, 3 + length)
    model = load_block_model(FIXTURES / "llada")
    both = TokenSequences(tokens, "ids", "none", lengths=lengths)
    options = {"protocol": Protocol(num_orderings=2), "show": False}

    def nats(text):
        return math.log(evaluate(model, text, **options)["regimes"]["ao_arm"]["exact"]["ppl"])

    alone = [nats(row[None, :length]) for row, length in zip(tokens, lengths, strict=True)]
    assert nats(both) == pytest.approx((alone[0] * 8 + alone[1] * 5) / 13, abs=1e-6)
