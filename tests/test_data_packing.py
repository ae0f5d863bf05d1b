"""Packing: the whole stream, once, in order."""

import hashlib

import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tube_lightning.data import (
    ByteTokenizer,
    TokenSequences,
    cut_documents,
    load_tokenizer,
    pack,
    packing,
)

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
    with pytest.raises(
        ValueError,
        match=r"got 8 tokens in all: a shorter length= takes it, or data\.p",
    ):
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


# ---- bytes and documents


DEMO = load_tokenizer("demo")
MIXED = ["the café", "", "🎉", "a list of 猫猫", "e", "", "it is"]


def annotated(documents, append_eos):
    """The documents' tokens by hand: (id, bytes, document), an EOS of no bytes after each."""
    for number, document in enumerate(documents):
        encoded = DEMO.encode(document)
        for token, size in zip(encoded.ids.tolist(), encoded.num_bytes.tolist(), strict=True):
            yield token, size, number
        if append_eos:
            yield DEMO.eos_id, 0, number


def rows_of(text):
    """The true tokens of every sequence, as (id, bytes, document)."""
    ends = [text.length] * len(text) if text.lengths is None else text.lengths.tolist()
    rows = zip(
        text.tokens.tolist(), text.token_bytes.tolist(), text.documents.tolist(), strict=True
    )
    return [list(zip(*row, strict=True))[:end] for row, end in zip(rows, ends, strict=True)]


PIECES = st.sampled_from(["the ", "list", "é", "🎉", "猫", "\n"])
MANY = st.lists(st.lists(PIECES, max_size=5).map("".join), min_size=1, max_size=6)


@given(MANY, st.integers(1, 6), st.booleans())
def test_a_stream_keeps_the_bytes_and_documents_of_its_tokens(documents, length, append_eos):
    stream = list(annotated(documents, append_eos))
    if len(stream) < length:
        return
    packed = pack(documents, DEMO, length, append_eos=append_eos)
    kept = [token for row in rows_of(packed) for token in row]
    assert kept == stream[: len(stream) // length * length]
    dropped = sum(size for _, size, _ in stream[len(kept) :])
    assert packed.token_bytes.sum() + dropped == len("".join(documents).encode())


@given(MANY, st.integers(2, 6), st.booleans())
def test_documents_apart_keep_the_bytes_of_their_tokens(documents, length, append_eos):
    """Windows of one token are dropped with their bytes; padding has no bytes."""
    windows = []
    for number in range(len(documents)):
        tokens = [t for t in annotated(documents, append_eos) if t[2] == number]
        windows += [tokens[first : first + length] for first in range(0, len(tokens), length)]
    if max(map(len, windows), default=0) < 2:
        return
    apart = cut_documents(documents, DEMO, length, append_eos=append_eos)
    assert rows_of(apart) == [window for window in windows if len(window) > 1]
    dropped = sum(window[0][1] for window in windows if len(window) == 1)
    assert apart.token_bytes.sum() + dropped == len("".join(documents).encode())
    padding = torch.arange(length) >= apart.lengths[:, None]
    assert not apart.token_bytes[padding].any()
    assert torch.equal(apart.documents, apart.documents[:, :1].expand(-1, length))


@pytest.mark.parametrize("cut", [pack, cut_documents])
def test_each_document_has_its_bytes(cut):
    """Read from the sequences alone, EOS and empty documents among them."""
    text = cut(MIXED, DEMO, 2, append_eos=True)
    for number, document in enumerate(MIXED):
        here = text.documents == number
        if cut is pack and number == len(MIXED) - 1:
            continue  # its end may be dropped
        single = cut is cut_documents and len(DEMO.encode(document).ids) % 2 == 0
        assert text.token_bytes[here].sum() == len(document.encode())
        assert here.any() or single  # there an EOS was alone, and is dropped


@pytest.mark.parametrize("cut", [pack, cut_documents])
def test_a_byte_is_a_byte_and_an_end_is_none(cut):
    text = cut(MIXED, ByteTokenizer(), 4)
    assert torch.equal(text.token_bytes, (text.tokens != 0).int())
    first = text.tokens[:, 0] != 0
    assert text.num_scored_bytes == (text.tokens != 0).sum() - first.sum()


def test_the_first_sequences_have_the_same_bytes():
    whole, some = pack(MIXED, DEMO, 3), pack(MIXED, DEMO, 3, max_sequences=2)
    assert torch.equal(some.token_bytes, whole.token_bytes[:2])
    assert torch.equal(some.documents, whole.documents[:2])


@pytest.mark.parametrize("buffer", [1, 5])
def test_buffers_do_not_mix_up_bytes(monkeypatch, buffer):
    expected = pack(MIXED, DEMO, 3)
    monkeypatch.setattr(packing, "_TOKENS_A_BUFFER", buffer)
    assert rows_of(pack(MIXED, DEMO, 3)) == rows_of(expected)


def test_bytes_are_known_or_not_and_change_no_hash():
    bare, known = sequences([[1, 2]]), sequences([[1, 2]], token_bytes=torch.tensor([[3, 4]]).int())
    assert (bare.num_scored_bytes, known.num_scored_bytes) == (None, 4)
    assert bare.sha256 == known.sha256


@pytest.mark.parametrize("name", ["token_bytes", "documents"])
def test_bytes_and_documents_of_other_tokens(monkeypatch, name):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    match = rf"{name}: expected one for each token, \(1, 2\), got \(1, 1\)"
    with pytest.raises(ValueError, match=match):
        sequences([[1, 2]], **{name: torch.tensor([[3]]).int()})
