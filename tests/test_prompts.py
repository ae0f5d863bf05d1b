"""Prompts are given, completions are scored: texts, chats, and the ARM on the same tokens."""

import json
import math

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.decoders import FIXTURES, GOLDEN, save_layout
from tube_lightning import evaluate
from tube_lightning.checkpoints import Checkpoint, companion, load_block_model, load_companion
from tube_lightning.data import TokenSequences, evaluation_sequences, load_tokenizer
from tube_lightning.lattice import exact_log_likelihood
from tube_lightning.networks import DecoderARM
from tube_lightning.protocol import Protocol
from tube_lightning.scoring import conditional_table

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def tokenizer_folder(tmp_path):
    """A tokenizer whose class is code in the folder, as SDAR's and Dream's are."""
    letters = {letter: number for number, letter in enumerate("abcdefgh <>")}
    words = ["<user>", "<assistant>", "<|endoftext|>"]
    backend = Tokenizer(models.BPE(vocab=letters, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(words)
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "OwnTokenizer",
                "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]},
                "eos_token": "<|endoftext|>",
                "chat_template": TEMPLATE,
            }
        )
    )
    (folder / "own.py").write_text("raise SystemExit('a tokenizer ran')")
    return folder


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path, folder, **options):
    columns = {"prompt_column": "question", "completion_column": "answer"}
    options = {"length": 16, "vocab_size": 14} | columns | options
    return evaluation_sequences(path, str(folder), **options)


def test_code_of_a_tokenizer_is_never_run(tokenizer_folder):
    tokenizer = load_tokenizer(tokenizer_folder)
    assert tokenizer.encode("ab<user>").ids.tolist() == [0, 1, 11]
    assert tokenizer.eos_id == 13


def test_prompts_are_given_and_completions_scored(tmp_path, tokenizer_folder):
    rows = [{"question": "abc", "answer": "de"}, {"question": "a", "answer": "b"}]
    text = read(write_rows(tmp_path / "rows.jsonl", rows), tokenizer_folder)
    assert text.tokens.tolist() == [[0, 1, 2, 3, 4, 13], [0, 1, 13, 0, 0, 0]]
    assert text.lengths.tolist() == [6, 3]
    assert text.num_given.tolist() == [3, 1]
    assert text.num_scored_bytes == 3
    assert text.most_scored == 3
    others = read(tmp_path / "rows.jsonl", tokenizer_folder, append_eos=False)
    assert others.tokens.tolist() == [[0, 1, 2, 3, 4], [0, 1, 0, 0, 0]]
    short = read(tmp_path / "rows.jsonl", tokenizer_folder, length=4)
    assert (short.tokens.tolist(), short.num_dropped) == ([[0, 1, 13]], 6)


def test_chats_are_rendered_by_the_template(tmp_path, tokenizer_folder):
    rows = [
        {"question": "ab", "answer": "c"},
        {"question": [{"role": "user", "content": "ab"}], "answer": "c"},
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    text = read(path, tokenizer_folder, chat_template=True)
    assert text.tokens.tolist() == [[11, 0, 1, 12, 2, 13]] * 2
    assert text.num_given.tolist() == [4, 4]
    with pytest.raises(ValueError, match=r"row 1: expected text .* messages need chat_template=tr"):
        read(path, tokenizer_folder)
    with pytest.raises(ValueError, match="tokenizer byte has no template"):
        read(path, "byte", chat_template=True, vocab_size=257)


def test_templates_are_rendered_in_a_sandbox(tmp_path, tokenizer_folder):
    path = tokenizer_folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["chat_template"] = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    path.write_text(json.dumps(config))
    rows = write_rows(tmp_path / "rows.jsonl", [{"question": "ab", "answer": "c"}])
    with pytest.raises(ValueError, match=r"failed \(\w+: .*(unsafe|undefined)"):
        read(rows, tokenizer_folder, chat_template=True)


def test_rows_that_cannot_be_scored_are_refused(tmp_path, tokenizer_folder):
    path = write_rows(tmp_path / "rows.jsonl", [{"question": "", "answer": "c"}])
    with pytest.raises(ValueError, match=r"row 0: expected at least one token of each"):
        read(path, tokenizer_folder)
    with pytest.raises(ValueError, match="expected both or none, got 'question' and None"):
        read(path, tokenizer_folder, completion_column=None)
    path = write_rows(tmp_path / "rows.jsonl", [{"question": "abcd", "answer": "c"}])
    with pytest.raises(ValueError, match="expected a row of at most 3 tokens, got none of 6"):
        read(path, tokenizer_folder, length=3)


def test_a_padded_vocabulary_fits(tmp_path, tokenizer_folder):
    path = write_rows(tmp_path / "rows.jsonl", [{"question": "a", "answer": "c"}])
    with pytest.raises(ValueError, match="tokenizer: expected 63 tokens"):
        read(path, tokenizer_folder, vocab_size=64)


def test_a_short_answer_behind_a_long_prompt_is_exact():
    tokens = torch.arange(30).repeat(2, 1)
    text = TokenSequences(tokens, "ids", "none", num_given=torch.tensor([27, 28]))
    model = load_block_model(FIXTURES / "llada")
    found = evaluate(model, text, protocol=Protocol(num_orderings=2), show=False)
    expected = 0.0
    for given in (27, 28):
        sets = torch.ones(2 ** (30 - given), 30, dtype=torch.bool)
        sets[:, given:] = torch.tensor(
            [[bool(code >> bit & 1) for bit in range(30 - given)] for code in range(len(sets))]
        )
        table = conditional_table(model, tokens[:1], sets)[0, 0][:, given:]
        expected += exact_log_likelihood(table).item()
    ppl = found["regimes"]["ao_arm"]["exact"]["ppl"]
    assert math.log(ppl) == pytest.approx(-expected / 5, abs=1e-5)


def test_a_model_with_a_causal_context_is_its_own_arm(tmp_path):
    model = load_block_model(tmp_path, **save_layout("nemotron", tmp_path))
    arm = load_companion(companion("arm", Checkpoint(tmp_path), "self"), model)
    tokens = torch.arange(20)[None]
    network = model.network
    found = arm.token_log_probs(tokens)
    network.set_attn_implementation("sdpa")
    with torch.no_grad():
        logits = network(tokens, use_cache=False).logits.log_softmax(dim=-1)
    network.set_attn_implementation("tube_lightning")
    expected = logits[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert next(arm.parameters()) is next(model.parameters())
    results = evaluate(model, tokens, arm="self", protocol=Protocol(num_orderings=2), show=False)
    assert results["arm"]["ppl"] == pytest.approx(math.exp(-expected.mean().item()), rel=1e-4)
    with pytest.raises(ValueError, match="got one whose context is 'block'"):
        DecoderARM(load_block_model(FIXTURES / "sdar", **GOLDEN["sdar"]))
    with pytest.raises(ValueError, match="BlockDiffusion cannot be read from left to right"):
        load_companion(Checkpoint("self"), load_block_model(FIXTURES / "radd"))
