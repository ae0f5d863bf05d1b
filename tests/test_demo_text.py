"""The demo text: what is held out, and that none of it is trained on; the n-gram baseline."""

import inspect
import json
import sys
from pydoc_data.topics import topics

import numpy as np
import pytest
import torch

from benchmarks import ngram
from benchmarks.embed_demo_text import PYTHON, train_tokenizer
from tube_lightning.data import (
    ByteTokenizer,
    TokenSequences,
    demo,
    demo_documents,
    demo_sequences,
    load_tokenizer,
    pack,
    python_text,
)
from tube_lightning.data.python_text import Document, python_documents
from tube_lightning.data.tokenizers import DEMO_TOKENIZER_FILE

SHINGLE = 50
on_its_python = pytest.mark.skipif(
    sys.version_info[:2] != PYTHON, reason="the embedded files were made by Python 3.11"
)


def shingles(documents):
    """Runs of 50 characters, white space made uniform: one way to see what texts share."""
    texts = (" ".join(document.text.split()) for document in documents)
    return {text[i : i + SHINGLE] for text in texts for i in range(len(text) - SHINGLE + 1)}


@pytest.fixture(scope="module")
def train():
    return demo_documents("train")


@pytest.fixture(scope="module")
def validation():
    return demo_documents("validation")


@pytest.fixture(scope="module")
def heldout():
    return demo_documents("heldout")


def test_there_are_enough_heldout_documents_for_honest_errors(heldout):
    sizes = [len(document.text.encode()) for document in heldout]
    assert len(sizes) >= 30
    assert all(1000 <= size <= 6000 for size in sizes)
    assert max(sizes) < 0.1 * sum(sizes)
    assert len({document.name for document in heldout}) == len(heldout)


@on_its_python
def test_the_embedded_text_is_that_of_its_python(heldout):
    """By another way than the package's: from pydoc and the file."""
    lines = demo.HELDOUT_FILE.read_text(encoding="utf-8").splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == [tuple(d) for d in heldout]
    for document in heldout:
        kind, name = document.name.split(" ")
        if kind == "topic":
            assert document.text == topics[name]
    assert list(heldout) == demo.select_heldout(python_documents())


@on_its_python
def test_the_embedded_tokenizer_is_learned_from_the_training_text(tmp_path):
    train_tokenizer().save(str(tmp_path / "tokenizer.json"), pretty=False)
    assert (tmp_path / "tokenizer.json").read_bytes() == DEMO_TOKENIZER_FILE.read_bytes()


def test_the_splits_have_no_name_in_common(train, validation, heldout):
    names = [{document.name for document in split} for split in (train, validation, heldout)]
    assert not names[0] & names[1]
    assert not names[0] & names[2]
    assert not names[1] & names[2]
    assert len(validation) >= 10
    assert len(train) > 500


def test_what_is_kept_apart_is_not_in_the_training_text(train, validation, heldout):
    unseen = shingles([*heldout, *validation])
    assert len(unseen & shingles(train)) / len(unseen) < 0.002
    assert len(shingles(heldout) & shingles(validation)) / len(unseen) < 0.002


def test_no_docstring_of_a_heldout_module_is_in_the_training_text(train, heldout):
    """Whole docstrings and paragraphs, not windows of them; short ones say nothing of a topic."""
    whole = "\n".join(document.text for document in train)
    paragraphs = {
        paragraph.strip()
        for document in heldout
        for paragraph in document.text.split("\n\n")
        if len(" ".join(paragraph.split())) >= SHINGLE
    }
    assert len(paragraphs) > 300
    assert not [paragraph for paragraph in paragraphs if paragraph in whole]


def test_a_split_by_name_alone_would_leak(heldout):
    names = {document.name for document in heldout}
    others = [document for document in python_documents() if document.name not in names]
    unseen = shingles(heldout)
    assert len(unseen & shingles(others)) / len(unseen) > 0.05


def test_only_paragraphs_that_quote_are_left_out(train):
    quoted = "quoted " * 10
    text = f"first\n\n\n  second\n\nhas {quoted[:28]}\n {quoted[28:]} in it\n\nlast\n"
    documents = [Document("a", text), Document("b", quoted)]
    (kept,) = demo._without_quotes(documents, [Document("c", quoted)])
    assert kept == ("a", "first\n\n\n  second\n\nlast\n")
    originals = dict(python_documents())
    assert sum(originals[d.name] == d.text for d in train) > 0.7 * len(train)


def test_docstrings_come_from_the_standard_library(train):
    texts = {document.name: document.text for document in train}
    assert texts["module json.__init__"].startswith("JSON (JavaScript Object Notation)")
    assert sum(name.startswith("module") for name in texts) > 200
    assert all("\0" not in text and text.strip() for text in texts.values())


def test_docstrings_of_a_module(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Module."""\n\nclass A:\n    """Class.\n\n    Indented.\n    """\n\n'
        '    async def f(self):\n        """Method."""\n\n'
        'def g():\n    """\\ud800"""\n\ndef h():\n    """"""\n\ndef i():\n    """\\0"""\n'
        'raise SystemExit("executed")\nx = "\\d"\n'
    )
    assert list(python_text._docstrings(path)) == ["Module.", "Class.\n\nIndented.", "Method."]
    path.write_bytes(b"\xff\xfe")
    assert list(python_text._docstrings(path)) == []
    assert list(python_text._docstrings(tmp_path / "none.py")) == []


def test_blocks_are_the_packed_documents(heldout):
    texts = [document.text for document in heldout]
    sequences = demo_sequences("heldout")
    assert sequences.length == 128
    assert sequences.sha256 == pack(texts, load_tokenizer("demo"), 128).sha256
    assert (sequences.source, sequences.tokenizer) == ("demo/heldout", "demo")
    as_bytes = demo_sequences("heldout", 256, tokenizer="byte")
    assert as_bytes.sha256 == pack(texts, ByteTokenizer(), 256).sha256
    assert demo_sequences("train").num_tokens > 500_000


def test_everyone_has_the_same_heldout_tokens():
    """Whatever the release of Python."""
    assert demo_sequences("heldout").sha256.startswith("845377fa04fab97b")


def test_unknown_split():
    with pytest.raises(ValueError, match="split: expected one of train, validation, heldout, got"):
        inspect.unwrap(demo_documents)("test")


# ---- the n-gram baseline


def random_blocks(seed, shape, vocabulary=6):
    tokens = np.random.default_rng(seed).integers(0, vocabulary, shape)
    return TokenSequences(torch.from_numpy(tokens), "random", "byte")


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_ngram_probabilities_sum_to_one(order):
    stream = random_blocks(0, (1, 200)).tokens.numpy()[0]
    levels = ngram.kneser_ney(stream, order, 256)[-1]
    contexts = np.random.default_rng(1).integers(0, 8, (20, order - 1))  # some never seen
    for context in contexts:
        grams = np.array([[*context, word] for word in range(256)])
        codes = ngram.gram_codes(grams, order, 256)[:, 0]
        assert ngram.probabilities(levels, codes, 256).sum() == pytest.approx(1, abs=1e-12)


def test_bigram_by_hand():
    """Stream 0 0 1 0 2: the formula with the counts read off by eye."""
    levels = ngram.kneser_ney(np.array([0, 0, 1, 0, 2]), 2, 256)[1]
    discount = (4 + 0.5) / (4 + 2 * 0 + 1)  # bigrams 00 01 10 02, each once
    assert levels[1].discount == pytest.approx(discount)
    unigrams = {0: 2, 1: 1, 2: 1}  # distinct bytes before: 0 after 0 and 1; 1 after 0; 2 after 0
    low_discount = (2 + 0.5) / (2 + 2 * 1 + 1)
    lower = {w: (c - low_discount) / 4 + low_discount * 3 / 4 / 256 for w, c in unigrams.items()}
    expected = (1 - discount) / 3 + discount * 3 / 3 * lower[1]
    assert ngram.probabilities(levels, np.array([0 * 256 + 1]), 256)[0] == pytest.approx(expected)
    unseen_context = ngram.probabilities(levels, np.array([9 * 256 + 1]), 256)[0]
    assert unseen_context == pytest.approx(lower[1])


def test_ngrams_find_structure_and_only_inside_a_sequence():
    text = np.tile(np.arange(7), 300)
    train = TokenSequences(torch.from_numpy(text[: 256 * 8].reshape(8, 256)), "cycle", "byte")
    bits = ngram.sequence_bits(train, train, 256, 3)
    assert bits.shape == (3, 8)
    assert bits[0].mean() / 255 == pytest.approx(np.log2(7), abs=0.05)
    assert bits[1].mean() / 255 < 0.01
    shuffled = TokenSequences(train.tokens.flip(0), "cycle", "byte")
    assert ngram.sequence_bits(train, shuffled, 256, 3).mean() == pytest.approx(bits.mean())
