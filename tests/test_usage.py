"""The command line: what --help shows, and keys that nobody knows."""

import subprocess
import sys
from pathlib import Path

import pytest

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.usage import check_keys, help_text

ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "configs"
ESTIMATORS = {"estimators": dict(EstimatorSettings())}


@pytest.fixture(scope="module")
def evaluation_help():
    return help_text([], CONFIGS, "evaluate", ESTIMATORS)


def test_help_has_the_experiments_of_its_script_with_a_line_each(evaluation_help):
    assert "\n  owt_l4: The paper's Table 1 at L' = 4: " in evaluation_help
    assert "train_" not in evaluation_help
    of_training = help_text([], CONFIGS, "train", {})
    assert "\n  train_lm1b_mdlm: The paper's LM1B recipe" in of_training
    assert "zeroshot" not in of_training


@pytest.mark.parametrize(
    "option", ["length=N", "data.per_document=true", "model.dtype=", "data.column=", "null or none"]
)
def test_help_names_the_options_people_need(evaluation_help, option):
    options = evaluation_help.partition("Options people need")[2].partition("All settings")[0]
    assert option in options


def test_settings_stand_with_their_comments(evaluation_help):
    settings = evaluation_help.partition("All settings:")[2]
    assert "\n  weights: ema # of a training checkpoint: ema or raw\n" in settings
    assert "\n  num_orderings: null # null = 24, 64 or 128 for blocks" in settings
    assert "\n  cubo_beta: 2.0" in settings
    assert "\n  column: text # of jsonl" in help_text(["data=text"], CONFIGS, "evaluate", {})


@pytest.mark.parametrize(
    ("script", "word", "near"),
    [
        ("evaluate", "modle.checkpoint=x", "model.checkpoint"),
        ("evaluate", "batchsize=3", "batch_size"),
        ("evaluate", "estimators.cubo_betta=3", "estimators.cubo_beta"),
        ("train", "trainer.max_step=3", "trainer.max_steps"),
        ("sample", "num_sequence=3", "num_sequences"),
    ],
)
def test_a_mistyped_key_names_the_nearest(script, word, near):
    with pytest.raises(SystemExit, match=f"there is no such setting; did you mean {near}"):
        check_keys([word], CONFIGS, script, ESTIMATORS)


def test_what_is_there_or_is_hydras_passes():
    words = ["data=text", "data.path=a=b", "+trainer.fast=1", "~logger", "hydra.run.dir=x"]
    words += ["--cfg=job", "trainer.logger.project=x", "estimators.cubo_beta=3", "data.column=x"]
    check_keys(words, CONFIGS, "evaluate", ESTIMATORS)


def test_the_scripts_do_so_before_anything_slow():
    for script in ("evaluate", "train", "sample"):
        command = [sys.executable, str(ROOT / f"{script}.py"), "no_such_key=1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("error: no_such_key: there is no such setting; ")
        assert len(done.stderr.splitlines()) == 1
