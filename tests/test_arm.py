"""Autoregressive models: the published baseline and causal models of transformers."""

import json
from pathlib import Path

import pytest
import torch
import transformers

from tube_lightning.checkpoints import load_arm, load_block_model
from tube_lightning.networks.arm import DiTARM, TransformersARM
from tube_lightning.networks.protocols import AutoregressiveModel
from tube_lightning.networks.tokens import check_tokens

AR = Path(__file__).parent / "fixtures" / "ar"


@pytest.fixture(scope="module")
def expected():
    return json.loads((AR / "expected.json").read_text())


@pytest.fixture(scope="module")
def tokens(expected):
    return torch.tensor(expected["tokens"])


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=24, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gpt2(gpt2_folder):
    return load_arm(gpt2_folder)


@pytest.fixture(scope="module", params=["dit", "gpt2"])
def arm(request):
    return load_arm(AR) if request.param == "dit" else request.getfixturevalue("gpt2")


def test_golden_numbers(tokens, expected):
    golden = torch.tensor(expected["cases"][0]["logp_next"])
    log_probs = load_arm(AR).token_log_probs(tokens)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs, golden, atol=1e-5, rtol=0)


def test_a_model_of_transformers_directly(gpt2, gpt2_folder, tokens):
    tokens = tokens % 40
    model = transformers.GPT2LMHeadModel.from_pretrained(gpt2_folder).eval()
    with torch.no_grad():
        direct = model(tokens).logits.log_softmax(-1)
    direct = direct[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(gpt2.token_log_probs(tokens), direct, atol=1e-5, rtol=0)
    assert (gpt2.vocab_size, gpt2.max_length) == (40, 24)


def test_arms_follow_the_protocol(arm):
    assert isinstance(arm, AutoregressiveModel)


def test_probabilities_sum_to_one(arm):
    """Over the next token, after a prefix; the mask token of the baseline has none."""
    num_data_tokens = 40
    prefix = torch.tensor([3, 1, 4, 1, 5]).repeat(num_data_tokens, 1)
    sequences = torch.cat([prefix, torch.arange(num_data_tokens)[:, None]], dim=1)
    last = arm.token_log_probs(sequences)[:, -1]
    assert last.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_neighbours_and_the_future_change_nothing(arm, tokens):
    together = arm.token_log_probs(tokens)
    for row, sequence in zip(together, tokens, strict=True):
        torch.testing.assert_close(arm.token_log_probs(sequence[None])[0], row, atol=1e-5, rtol=0)
    prefix = arm.token_log_probs(tokens[:, :10])
    torch.testing.assert_close(prefix, together[:, :9], atol=1e-5, rtol=0)
    assert torch.equal(arm.token_log_probs(tokens), together)


def test_pieces_of_the_logits_change_nothing(gpt2, tokens, monkeypatch):
    whole = gpt2.token_log_probs(tokens)
    monkeypatch.setattr("tube_lightning.networks.arm._MAX_LOGITS", 1)
    torch.testing.assert_close(gpt2.token_log_probs(tokens), whole, atol=1e-5, rtol=0)


def test_a_single_token_predicts_nothing(arm):
    assert arm.token_log_probs(torch.tensor([[1], [2]])).shape == (2, 0)


def test_moving_keeps_the_dtypes(tokens):
    arm = load_arm(AR)
    before = arm.token_log_probs(tokens)
    assert torch.equal(arm.to(torch.float16).half().double().token_log_probs(tokens), before)
    assert arm.trunk.layers[0].qkv.dtype == torch.float32
    assert arm.to("meta").trunk.layers[0].mlp_in[0].device.type == "meta"
    assert not list(arm.parameters())


def test_a_trainers_precision_does_not_reach_a_model_of_transformers(gpt2_folder, tokens):
    arm = load_arm(gpt2_folder)
    expected = arm.token_log_probs(tokens)
    arm.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = arm.token_log_probs(tokens)
    assert torch.equal(got, expected)


def test_lower_precision_is_close(tokens):
    exact = load_arm(AR).token_log_probs(tokens)
    log_probs = load_arm(AR, dtype=torch.float16).token_log_probs(tokens)
    assert log_probs.dtype == torch.float32
    assert not torch.equal(log_probs, exact)
    torch.testing.assert_close(log_probs, exact, atol=0.05, rtol=0)


# ----- what is refused, and how


@pytest.mark.parametrize(
    ("sequences", "match"),
    [
        ([[1, 2], [3, 99]], "expected ids in 0.*got 99 in sequence 1 at position 1"),
        ([[1, -1]], "expected ids in 0.*got -1 in sequence 0 at position 1"),
        ([[1] * 25], "expected at most 24 per sequence, got 25"),
    ],
)
def test_tokens_out_of_range(arm, sequences, match):
    with pytest.raises(ValueError, match=match):
        arm.token_log_probs(torch.tensor(sequences))


def test_the_mask_token_is_no_data():
    with pytest.raises(
        ValueError, match="without the mask id 40, got 40 in sequence 0 at position 2"
    ):
        load_arm(AR).token_log_probs(torch.tensor([[1, 2, 40]]))


@pytest.mark.parametrize(
    ("tokens", "match"),
    [
        (torch.ones(2, 3), r"expected int64 \[batch, length\], got torch.float32 \(2, 3\)"),
        (torch.ones(3, dtype=torch.int64), r"expected int64 .*, got torch.int64 \(3,\)"),
        (torch.ones(0, 3, dtype=torch.int64), r"at least one token, got shape \(0, 3\)"),
        (torch.ones(3, 0, dtype=torch.int64), r"at least one token, got shape \(3, 0\)"),
    ],
)
def test_tokens_of_other_shapes(tokens, match):
    with pytest.raises(ValueError, match=match):
        check_tokens(tokens, vocab_size=5, max_length=8)


def test_good_tokens_pass():
    check_tokens(torch.tensor([[0, 4], [3, 2]]), vocab_size=5, max_length=2)
    check_tokens(torch.ones(1, 99, dtype=torch.int64), vocab_size=5, max_length=None, mask_id=4)


def test_not_a_number_is_named(gpt2_folder):
    sequences = torch.tensor([[1, 2, 3, 4], [1, 2, 7, 4]])
    arm = load_arm(AR)
    arm.trunk.embedding[7] = torch.nan
    with pytest.raises(ValueError, match=r"finite numbers, got nan for sequence 1, position \d"):
        arm.token_log_probs(sequences)
    arm = load_arm(gpt2_folder)
    with torch.no_grad():
        arm.model.lm_head.weight[5] = torch.inf
    with pytest.raises(ValueError, match="finite numbers, got nan for sequence 0, position 1"):
        arm.token_log_probs(sequences)


def test_a_diffusion_model_is_no_arm():
    model = load_block_model(AR.parent / "mdlm")
    with pytest.raises(ValueError, match="expected an autoregressive model"):
        DiTARM(model.config, model.trunk)


def changed_folder(tmp_path, source, **fields):
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text()) | fields
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"model_type": "nonsense"}, "no causal language model .* model type `nonsense`"),
        (
            {"model_type": "own", "auto_map": {"AutoConfig": "c.C", "AutoModelForCausalLM": "c.M"}},
            "no causal language model .* remote code, which is never run",
        ),
        ({"model_type": "t5"}, "no causal language model"),
        ({"n_embd": 32}, "no causal language model"),
        ({"n_layer": 3}, r"missing tensors transformer\.h\.2\.attn\.c_attn\.bias, "),
    ],
)
def test_what_transformers_cannot_read(tmp_path, gpt2_folder, fields, match):
    folder = changed_folder(tmp_path, gpt2_folder, **fields)
    sentinel = tmp_path / "ran"
    (folder / "c.py").write_text(f"open({str(sentinel)!r}, 'w')")
    with pytest.raises(ValueError, match=match):
        load_arm(folder)
    assert not sentinel.exists()


def test_only_safetensors(tmp_path, gpt2_folder):
    folder = changed_folder(tmp_path, gpt2_folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="no causal language model"):
        load_arm(folder)


def test_an_encoder_is_not_causal(tmp_path):
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="expected a causal model, got one that sees later tokens"):
        load_arm(tmp_path)


def test_options_of_our_own_networks_are_not_for_transformers(gpt2_folder):
    with pytest.raises(ValueError, match="n_heads, model_length, mask_id: expected none for"):
        load_arm(gpt2_folder, n_heads=4)


def test_a_model_without_a_limit(tmp_path, gpt2):
    class Endless(torch.nn.Module):
        class config:  # noqa: N801
            vocab_size = 40

            @classmethod
            def get_text_config(cls):
                return cls

    assert TransformersARM(Endless()).max_length is None
