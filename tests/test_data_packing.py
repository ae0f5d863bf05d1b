"""Packing: the whole stream, once, in order."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tube_lightning.data import ByteTokenizer, TokenSequences, pack, packing

DOCUMENTS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))


def naive_stream(documents, append_eos=True):
    stream = []
    for document in documents:
        stream += list(document.encode())
        if append_eos:
            stream.append(0)
    return stream


def sequences(tokens, **changes):
    return TokenSequences(torch.tensor(tokens), source="test", tokenizer="byte", **changes)


@given(DOCUMENTS, st.integers(1, 6), st.booleans())
def test_packing_is_concatenation_cut_into_sequences(documents, length, append_eos):
    stream = naive_stream(documents, append_eos)
    if len(stream) < length:
        with pytest.raises(ValueError, match=r"document|full sequence"):
            pack(documents, ByteTokenizer(), length, append_eos=append_eos)
        return
    packed = pack(documents, ByteTokenizer(), length, append_eos=append_eos)
    kept = len(stream) // length * length
    assert packed.tokens.flatten().tolist() == stream[:kept]
    assert packed.tokens.shape == (len(packed), packed.length) == (kept // length, length)
    assert packed.num_tokens == kept
    assert packed.num_dropped == len(stream) - kept


@pytest.mark.parametrize("buffer", [1, 2, 7, 1000])
def test_buffers_and_iterators_change_nothing(monkeypatch, buffer):
    documents = ["one", "", "two two", "three " * 9]
    expected = pack(documents, ByteTokenizer(), 4)
    monkeypatch.setattr(packing, "_TOKENS_A_BUFFER", buffer)
    streamed = pack((document for document in documents), ByteTokenizer(), 4)
    assert torch.equal(streamed.tokens, expected.tokens)
    assert streamed.sha256 == expected.sha256


def test_where_a_text_is_cut_into_documents_matters_only_through_eos():
    whole = pack(["abcdef"], ByteTokenizer(), 3, append_eos=False)
    pieces = pack(["a", "bcd", "", "ef"], ByteTokenizer(), 3, append_eos=False)
    assert whole.sha256 == pieces.sha256


def test_documents_are_consumed_one_at_a_time():
    taken = []

    class Recorder(ByteTokenizer):
        def encode(self, text):
            assert taken == list(range(int(text) + 1))
            return super().encode(text)

    def documents():
        for number in range(5):
            taken.append(number)
            yield str(number)

    assert pack(documents(), Recorder(), 2).tokens[:, 0].tolist() == [48, 49, 50, 51, 52]


def test_hash_tells_tokens_and_shape_apart():
    base = [[1, 2], [3, 4]]
    others = [[[1, 2], [3, 5]], [[1, 2, 3, 4]], [[1], [2], [3], [4]], [[2, 1], [3, 4]]]
    hashes = {sequences(tokens).sha256 for tokens in [base, *others]}
    assert len(hashes) == 5
    assert sequences(base, num_dropped=3).sha256 == sequences(base).sha256


def test_hash_is_the_documented_one():
    expected = "".join(f"{value:02x}" + "00" * 7 for value in (1, 3, 97, 98, 0))
    digest = hashlib.sha256(bytes.fromhex(expected)).hexdigest()
    assert pack(["ab"], ByteTokenizer(), 3).sha256 == digest


def test_hash_of_a_view_is_that_of_its_values():
    tokens = torch.arange(12).reshape(3, 4)
    view = TokenSequences(tokens[:, ::2], "test", "byte")
    assert view.sha256 == sequences(tokens[:, ::2].tolist()).sha256


def test_source_and_tokenizer_are_named():
    packed = pack(["text"], ByteTokenizer(), 2, source="here")
    assert (packed.source, packed.tokenizer) == ("here", "byte")


def test_no_document():
    with pytest.raises(ValueError, match="here: expected at least one document, got none"):
        pack([], ByteTokenizer(), 4, source="here")


def test_no_full_sequence():
    with pytest.raises(ValueError, match="full sequence of 9 tokens, got 8 tokens in all"):
        pack(["abc", "def"], ByteTokenizer(), 9)


def test_no_length():
    with pytest.raises(ValueError, match="length: expected at least 1 token a sequence, got 0"):
        pack(["abc"], ByteTokenizer(), 0)


def test_bad_document_is_named():
    with pytest.raises(ValueError, match=r"here: document 1: text: expected no NUL .* at 2"):
        pack(["abc", "de\0f"], ByteTokenizer(), 2, source="here")


def test_tokenizer_without_eos():
    class Endless(ByteTokenizer):
        eos_id = None

    with pytest.raises(ValueError, match="append_eos: the tokenizer byte has no end-of-document"):
        pack(["abc"], Endless(), 2)
    assert pack(["abc"], Endless(), 3, append_eos=False).tokens.tolist() == [[97, 98, 99]]


def test_blocks_without_tokens():
    with pytest.raises(ValueError, match=r"tokens: expected at least one, got shape \(0, 4\)"):
        TokenSequences(torch.zeros(0, 4, dtype=torch.int64), "test", "byte")
