"""evaluate() on objects: what people pass by mistake, and which scores belong to which model."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.networks import random_network, random_tokens
from tube_lightning import evaluate
from tube_lightning.checkpoints import load_arm, load_block_model
from tube_lightning.data import TokenSequences, cut_documents, load_tokenizer
from tube_lightning.networks import BlockDiffusion, model_identity
from tube_lightning.pipeline.compatibility import check_models
from tube_lightning.protocol import Protocol
from tube_lightning.terminal import bar_console

FIXTURES = Path(__file__).parent / "fixtures"
IDS = [[3, 3, 22, 37, 33, 26, 19, 3], [37, 18, 17, 11, 38, 36, 19, 25]]
QUICK = Protocol(num_orderings=2, nfe=[])


class Uniform:
    """A user's own model: every token has one log-probability, and there are no weights."""

    mask_id, vocab_size, block_size, max_length = 40, 41, 4, 8

    def __init__(self, log_prob):
        self.log_prob = log_prob

    def encode(self, tokens):
        return None

    def log_probs(self, context, rows):
        return torch.full((int(rows.needed.sum()),), self.log_prob)


def exact(model, tokens=IDS, **options):
    results = evaluate(model, torch.tensor(tokens), protocol=QUICK, show=False, **options)
    return results["regimes"]["ao_arm"]["exact"]["nats_per_token"]


def test_paths_arrays_and_lists_are_what_objects_and_tensors_are():
    model, arm = FIXTURES / "bd3lm_block4", FIXTURES / "ar"
    loaded = evaluate(
        load_block_model(model), torch.tensor(IDS), arm=load_arm(arm), protocol=QUICK, show=False
    )
    for tokens in (IDS, np.array(IDS)):
        got = evaluate(model, tokens, arm=arm, protocol=QUICK, show=False)
        assert got["regimes"] == loaded["regimes"]
        assert got["arm"] == loaded["arm"]


def test_demo_names_are_checkpoints():
    tokens = [[0, *b"a list"]]
    got = evaluate("demo:bd3lm_l8", tokens, arm="demo:arm", protocol=QUICK, show=False)
    model, arm = load_block_model("demo:bd3lm_l8"), load_arm("demo:arm")
    assert got["regimes"] == evaluate(model, tokens, protocol=QUICK, arm=arm, show=False)["regimes"]
    expected = arm.token_log_probs(torch.tensor(tokens)).double().mean().item()
    assert got["arm"]["nats_per_token"] == pytest.approx(expected)


@pytest.mark.parametrize("tokens", [IDS[0], [IDS]])
def test_tokens_have_two_axes(tokens):
    with pytest.raises(ValueError, match=r"tokens: expected \[sequences, length\], got shape"):
        evaluate(Uniform(-1.0), tokens, show=False)


@pytest.mark.parametrize(
    ("model", "arms", "match"),
    [
        (None, {}, "model: expected a BlockModel, got NoneType"),
        (nn.Linear(2, 2), {}, "model: expected a BlockModel, got Linear"),
        (Uniform(-1.0), {"arm": Uniform(-1.0)}, "arm: expected an AutoregressiveModel, got Uni"),
    ],
)
def test_what_is_no_model_is_named(model, arms, match):
    with pytest.raises(TypeError, match=match):
        check_models(model, arms, TokenSequences(torch.tensor(IDS), "ids", "none"))


def test_an_arm_for_shorter_sequences_is_named():
    blocks = TokenSequences(torch.zeros(2, 28, dtype=torch.int64), "ids", "none")
    model = Uniform(-1.0)
    model.max_length = 28
    with pytest.raises(ValueError, match=r"for sequences of 28 tokens, got one for at most 24"):
        check_models(model, {"arm": load_arm(FIXTURES / "ar")}, blocks)


def test_the_mask_token_is_found_before_a_directory_is_claimed(tmp_path):
    masked = [IDS[0], [*IDS[1][:-1], 40]]
    with pytest.raises(ValueError, match=r"mask id 40, got 40 in sequence 1 at position 7"):
        exact(Uniform(-1.0), masked, output_dir=tmp_path / "run", batch_size=1)
    assert not (tmp_path / "run").exists()


def test_scores_of_a_model_that_cannot_be_told_are_not_given_to_another(tmp_path):
    assert exact(Uniform(-1.0), output_dir=tmp_path) == pytest.approx(-1.0)
    with pytest.raises(ValueError, match=r"whether they are of this model cannot be told"):
        exact(Uniform(-2.0), output_dir=tmp_path)


def test_a_model_may_say_which_it_is(tmp_path):
    one, two = Uniform(-1.0), Uniform(-2.0)
    one.fingerprint, two.fingerprint = "uniform -1", "uniform -2"
    for _ in range(2):
        assert exact(one, output_dir=tmp_path) == pytest.approx(-1.0)
    with pytest.raises(ValueError, match=r"another model \(model: other weights\)"):
        exact(two, output_dir=tmp_path)


@pytest.mark.parametrize(("name", "value"), [("block_size", 8), ("n_heads", 1)])
def test_the_same_weights_in_another_network_are_another_model(tmp_path, name, value):
    network = random_network(4)
    trunk = network.fold().freeze()
    tokens = random_tokens(2).tolist()
    exact(BlockDiffusion(network.config, trunk), tokens, output_dir=tmp_path)
    other = replace(network.config, **{name: value})
    with pytest.raises(ValueError, match=rf"models\.model\.{name}: there \d, now {value}"):
        exact(BlockDiffusion(other, trunk), tokens, output_dir=tmp_path)


def test_a_module_may_have_a_trunk_of_its_own():
    """Its weights are hashed all the same: the name alone does not make it ours."""

    class Own(nn.Module):
        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.trunk = nn.Linear(2, 2)

    hashes = [model_identity(Own(seed))["weights_sha256"] for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert None not in hashes


def test_text_is_cut_by_the_tokenizer_that_fits():
    """As the ids that the tokenizer makes of each document, in sequences of its own."""
    documents = ["a list of things", "to be or not to be"]
    results = evaluate("demo:bd3lm_l4", text=documents, protocol=QUICK, show=False)
    text = cut_documents(documents, load_tokenizer("demo"), 128)
    same = evaluate("demo:bd3lm_l4", text, protocol=QUICK, show=False)
    assert results["regimes"] == same["regimes"]
    assert results["counts"]["documents"] == 2
    one = evaluate("demo:bd3lm_l4", text=documents[0], length=8, protocol=QUICK, show=False)
    assert one["data"]["length"] == 8


@pytest.mark.parametrize("mistake", ["to be or not to be", ["to be", "or not"]])
def test_text_in_place_of_ids_says_how_to_make_them(mistake):
    with pytest.raises(ValueError, match=r'got text: evaluate\(model, text="\.\.\.", tokenizer='):
        evaluate("demo:bd3lm_l4", mistake)


def test_tokens_or_text_is_expected():
    with pytest.raises(ValueError, match="expected either tokens or text=, got neither"):
        evaluate("demo:bd3lm_l4")
    with pytest.raises(ValueError, match="expected either tokens or text=, got both"):
        evaluate("demo:bd3lm_l4", IDS, text="a")


def test_results_are_a_mapping_that_prints_as_table_and_verdict(capsys):
    results = evaluate(FIXTURES / "bd3lm_block4", IDS, protocol=QUICK)
    out = capsys.readouterr().out
    assert "Results are in" not in out
    assert isinstance(results, Mapping)
    assert json.loads(json.dumps(results))["verdict"] == results["verdict"]
    for shown in (repr(results), str(results), results._repr_markdown_()):
        assert "AO-ARM" in shown
        assert "there is no ARM to compare it with" in shown
        assert len(shown.splitlines()) < 30


def test_a_notebook_without_ipywidgets_has_a_bar_and_no_warning(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("tube_lightning.terminal.find_spec", lambda name: None)
    console = bar_console()
    assert not console.is_jupyter
    assert console.is_terminal
    results = evaluate(FIXTURES / "bd3lm_block4", IDS, protocol=QUICK, show=False)
    assert "AO-ARM" in repr(results)  # and not shown by itself
