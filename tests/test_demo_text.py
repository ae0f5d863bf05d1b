"""The demo text: what is in it, that nothing held out is trained on, and the n-gram baseline."""

import inspect
from pydoc_data.topics import topics

import numpy as np
import pytest
import torch

from benchmarks import byte_ngram
from tube_lightning.data import (
    ByteTokenizer,
    TokenSequences,
    demo,
    demo_documents,
    demo_sequences,
    pack,
)

SHINGLE = 50


def shingles(documents):
    """All windows of 50 characters, with white space made uniform."""
    texts = (" ".join(document.split()) for document in documents)
    return {text[i : i + SHINGLE] for text in texts for i in range(len(text) - SHINGLE + 1)}


@pytest.fixture(scope="module")
def train():
    return demo_documents("train")


@pytest.fixture(scope="module")
def heldout():
    return demo_documents("heldout")


def test_the_split_is_by_topic_name():
    train, heldout = demo.topic_names("train"), demo.topic_names("heldout")
    assert sorted(train + heldout) == sorted(topics)
    assert 0.08 < len(heldout) / len(topics) < 0.25


def test_heldout_text_is_whole_topics(heldout):
    assert heldout == [topics[name] for name in demo.topic_names("heldout")]


def test_heldout_text_is_not_in_the_training_text(train, heldout):
    unseen = shingles(heldout)
    overlap = len(unseen & shingles(train)) / len(unseen)
    assert overlap < 0.005


def test_a_split_by_name_alone_would_leak(heldout):
    unfiltered = [topics[name] for name in demo.topic_names("train")]
    unseen = shingles(heldout)
    assert len(unseen & shingles(unfiltered)) / len(unseen) > 0.1


def test_only_paragraphs_that_quote_the_heldout_text_are_left_out(train):
    quoted = "quoted " * 10
    text = f"first\n\n\n  second\n\nhas {quoted[:28]}\n {quoted[28:]} in it\n\nlast\n"
    windows = set(demo._windows(quoted))
    assert demo._without_windows(text, windows) == "first\n\n\n  second\n\nlast\n"
    untouched = sum(topics[name] in set(train) for name in demo.topic_names("train"))
    assert untouched > 0.7 * len(demo.topic_names("train"))


def test_docstrings_come_from_the_standard_library(train):
    docstrings = demo.stdlib_docstrings()
    assert len(docstrings) > 200
    assert any(text.startswith("JSON (JavaScript Object Notation)") for text in docstrings)
    assert len(set(docstrings)) == len(docstrings)
    assert all("\0" not in text and text.strip() for text in train)


def test_docstrings_of_a_module(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Module."""\n\nclass A:\n    """Class.\n\n    Indented.\n    """\n\n'
        '    async def f(self):\n        """Method."""\n\n'
        'def g():\n    """\\ud800"""\n\ndef h():\n    """"""\n\ndef i():\n    """\\0"""\n'
        'raise SystemExit("executed")\nx = "\\d"\n'
    )
    assert list(demo._docstrings(path)) == ["Module.", "Class.\n\nIndented.", "Method."]
    path.write_bytes(b"\xff\xfe")
    assert list(demo._docstrings(path)) == []
    assert list(demo._docstrings(tmp_path / "none.py")) == []


def test_blocks_are_the_packed_documents(heldout):
    sequences = demo_sequences("heldout")
    assert sequences.length == 256
    assert sequences.sha256 == pack(heldout, ByteTokenizer(), 256).sha256
    assert (sequences.source, sequences.tokenizer) == ("demo/heldout", "byte")
    assert len(sequences) > 100
    assert demo_sequences("train", 128).num_tokens > 1_000_000


def test_unknown_split():
    with pytest.raises(ValueError, match="split: expected 'train' or 'heldout', got 'test'"):
        inspect.unwrap(demo_documents)("test")


# ---- the n-gram baseline


def random_blocks(seed, shape, vocabulary=6):
    tokens = np.random.default_rng(seed).integers(0, vocabulary, shape)
    return TokenSequences(torch.from_numpy(tokens), "random", "byte")


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_ngram_probabilities_sum_to_one(order):
    stream = random_blocks(0, (1, 200)).tokens.numpy()[0]
    levels = byte_ngram.kneser_ney(stream, order)[-1]
    contexts = np.random.default_rng(1).integers(0, 8, (20, order - 1))  # some never seen
    for context in contexts:
        grams = np.array([[*context, word] for word in range(256)])
        codes = byte_ngram.gram_codes(grams, order)[:, 0]
        assert byte_ngram.probabilities(levels, codes).sum() == pytest.approx(1, abs=1e-12)


def test_bigram_by_hand():
    """Stream 0 0 1 0 2: the formula with the counts read off by eye."""
    levels = byte_ngram.kneser_ney(np.array([0, 0, 1, 0, 2]), 2)[1]
    discount = (4 + 0.5) / (4 + 2 * 0 + 1)  # bigrams 00 01 10 02, each once
    assert levels[1].discount == pytest.approx(discount)
    unigrams = {0: 2, 1: 1, 2: 1}  # distinct bytes before: 0 after 0 and 1; 1 after 0; 2 after 0
    low_discount = (2 + 0.5) / (2 + 2 * 1 + 1)
    lower = {w: (c - low_discount) / 4 + low_discount * 3 / 4 / 256 for w, c in unigrams.items()}
    expected = (1 - discount) / 3 + discount * 3 / 3 * lower[1]
    assert byte_ngram.probabilities(levels, np.array([0 * 256 + 1]))[0] == pytest.approx(expected)
    unseen_context = byte_ngram.probabilities(levels, np.array([9 * 256 + 1]))[0]
    assert unseen_context == pytest.approx(lower[1])


def test_ngrams_find_structure_and_only_inside_a_sequence():
    text = np.tile(np.arange(7), 300)
    train = TokenSequences(torch.from_numpy(text[: 256 * 8].reshape(8, 256)), "cycle", "byte")
    bits = byte_ngram.sequence_bits(train, train, 3)
    assert bits.shape == (3, 8)
    assert bits[0].mean() == pytest.approx(np.log2(7), abs=0.05)
    assert bits[1].mean() < 0.01
    shuffled = TokenSequences(train.tokens.flip(0), "cycle", "byte")
    assert byte_ngram.sequence_bits(train, shuffled, 3).mean() == pytest.approx(bits.mean())
