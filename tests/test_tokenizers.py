"""Tokenizers: bytes, and fast tokenizers in the layouts that people have on disk."""

import itertools
import json
from functools import cache

import pytest
import tokenizers
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from tube_lightning.data import (
    ByteTokenizer,
    PretrainedTokenizer,
    TextTokenizer,
    load_tokenizer,
    pack,
)

TEXT = ["the cat sat on the mat", "the dog sat on the log", "it's a naïve café"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_bytes_round_trip(text):
    ids = ByteTokenizer().encode(text).ids
    assert ids.tolist() == list(text.encode())
    for same in (ids, ids.tolist(), torch.from_numpy(ids)):
        assert ByteTokenizer().decode(same) == text


@given(st.lists(st.integers(0, 255)))
def test_any_bytes_decode(ids):
    assert ByteTokenizer().decode(ids) == bytes(ids).decode(errors="replace")


def test_bytes_refuse_nul_and_other_ids():
    with pytest.raises(ValueError, match=r"expected no NUL character .* got one at 1"):
        ByteTokenizer().encode("a\0b")
    with pytest.raises(ValueError, match=r"ids: expected bytes in 0\.\.255, got 256"):
        ByteTokenizer().decode([97, 256])


def test_byte_tokenizer_by_name():
    tokenizer = load_tokenizer("byte")
    assert isinstance(tokenizer, ByteTokenizer)
    assert isinstance(tokenizer, TextTokenizer)
    assert (tokenizer.vocab_size, tokenizer.eos_id, tokenizer.mask_id) == (256, 0, None)


def byte_level_bpe():
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=alphabet,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    backend.train_from_iterator(TEXT, trainer)
    return backend


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory):
    """A folder as GPT-2's: vocab.json, merges.txt and the name of the class."""
    folder = tmp_path_factory.mktemp("gpt2")
    byte_level_bpe().model.save(str(folder))
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def fast_folder(tmp_path_factory):
    """A folder as `save_pretrained` writes it: tokenizer.json."""
    folder = tmp_path_factory.mktemp("fast")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level_bpe(), eos_token="<|endoftext|>"
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("layout", ["gpt2_folder", "fast_folder"])
def test_byte_level_bpe_from_a_folder(layout, request):
    folder = request.getfixturevalue(layout)
    tokenizer = load_tokenizer(folder)
    assert isinstance(tokenizer, TextTokenizer)
    assert tokenizer.name == str(folder)
    assert tokenizer.vocab_size == byte_level_bpe().get_vocab_size()
    assert tokenizer.eos_id == 0
    assert tokenizer.mask_id is None
    for text in [*TEXT, "", "unseen: 猫\n  two  spaces"]:
        ids = tokenizer.encode(text).ids
        assert len(ids) < max(1, len(text.encode())) + 1
        assert tokenizer.decode(ids) == text
    assert tokenizer.decode([0]) == "<|endoftext|>"


def test_packing_with_a_pretrained_tokenizer(fast_folder):
    tokenizer = load_tokenizer(str(fast_folder))
    stream = [i for text in TEXT for i in [*tokenizer.encode(text).ids.tolist(), 0]]
    packed = pack(TEXT, tokenizer, 5)
    assert packed.tokens.flatten().tolist() == stream[: packed.num_tokens]
    assert packed.tokenizer == str(fast_folder)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "cat", "##s"]


def word_pieces():
    """Lowercases, strips accents, and drops white space and control characters, as BERT's."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=20)
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return backend


def test_bert_ends_documents_with_sep_and_has_its_own_mask(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    backend = word_pieces()
    backend.decoder = tokenizers.decoders.WordPiece()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id) == (2, 3, 4)
    assert tokenizer.vocab_size == 8
    assert tokenizer.encode("the cats").ids.tolist() == [5, 6, 7]
    assert tokenizer.decode([5, 6, 7]) == "the cats"


def test_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "notes.md").write_text("nothing here")
    with pytest.raises(FileNotFoundError, match=r"expected a folder with a tokenizer, .*notes\.md"):
        load_tokenizer(tmp_path)


def test_no_such_tokenizer():
    with pytest.raises(FileNotFoundError, match="no/such-thing: expected 'byte', 'demo', a"):
        load_tokenizer("no/such-thing")


# ---- bytes


def trimmed():
    """Adds a space in front and trims it off the offsets again, as RoBERTa's."""
    backend = byte_level_bpe()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    backend.add_special_tokens([tokenizers.AddedToken("<S>", lstrip=True)])
    return backend


def fallback():
    """Marks words with a prefix and spells unknown characters as bytes, as Llama's."""
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", *spelled, *"\u2581thecas", "th", "the", "\u2581the"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [("t", "h"), ("th", "e"), ("\u2581", "the")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    kinds = tokenizers.normalizers
    backend.normalizer = kinds.Sequence([kinds.Prepend("\u2581"), kinds.Replace(" ", "\u2581")])
    return backend


def normalized():
    """Composes and decomposes characters, several of them to one or one to several."""
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "fi": 1}, "<unk>"))
    backend.normalizer = tokenizers.normalizers.NFKD()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return backend


BACKENDS = {
    "bpe": byte_level_bpe,
    "word pieces": word_pieces,
    "trimmed": trimmed,
    "fallback": fallback,
    "normalized": normalized,
}
PIECES = st.sampled_from(
    ["the", " cat", "CATS", "  ", "\n", "<S>", "café", "e\u0301", "🎉", "猫", "ﬁ"]
)
CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXTS = st.lists(PIECES | CHARACTERS, max_size=12).map("".join)


@cache
def tokenizer_of(name):
    if name in ("byte", "demo"):
        return load_tokenizer(name)
    return PretrainedTokenizer(name, BACKENDS[name](), eos_id=None)


@pytest.mark.parametrize("name", ["byte", "demo", *BACKENDS])
@given(text=TEXTS)
def test_every_byte_of_a_text_belongs_to_one_token(name, text):
    """Also where a tokenizer changes or drops characters; but a text may have no token at all."""
    ids, num_bytes = tokenizer_of(name).encode(text)
    assert num_bytes.shape == ids.shape
    assert (num_bytes >= 0).all()
    drops = name in ("word pieces", "normalized")
    assert ids.size or drops or not text
    assert num_bytes.sum() == (len(text.encode()) if ids.size else 0)


@pytest.mark.parametrize("name", ["demo", "bpe"])
@given(text=TEXTS)
def test_tokens_of_bytes_have_the_bytes_that_they_spell(name, text):
    """But for characters that are cut: all bytes of those belong to the last of their tokens."""
    tokenizer = tokenizer_of(name)
    ids, num_bytes = tokenizer.encode(text)
    spelled = [len(tokenizer._backend.id_to_token(i)) for i in ids]  # a letter for every byte
    edges = [0, *itertools.accumulate(len(character.encode()) for character in text)]
    whole = [max(edge for edge in edges if edge <= end) for end in itertools.accumulate(spelled)]
    assert list(itertools.accumulate(num_bytes.tolist())) == whole


@pytest.mark.parametrize(
    ("name", "text", "num_bytes"),
    [
        ("byte", "é🎉", [1] * 6),
        ("demo", "", []),
        ("demo", "🎉", [0, 0, 0, 4]),
        ("word pieces", "the cats", [4, 3, 1]),
        ("word pieces", "  The\n  CATS  ", [8, 3, 3]),
        ("word pieces", "Thé\u200b thé", [8, 4]),
        ("word pieces", " \n ", []),
        ("trimmed", "<S>🎉", [3, 0, 0, 0, 0, 4]),
    ],
)
def test_bytes_of_tokens(name, text, num_bytes):
    """White space that is dropped belongs to the token before, or to the first."""
    assert tokenizer_of(name).encode(text).num_bytes.tolist() == num_bytes


def test_the_embedded_tokenizer():
    tokenizer = load_tokenizer("demo")
    assert isinstance(tokenizer, TextTokenizer)
    assert (tokenizer.name, tokenizer.bos_id, tokenizer.mask_id) == ("demo", None, None)
    assert tokenizer.decode([tokenizer.eos_id]) == "<|endoftext|>"
    for text in [*TEXT, "", "unseen: 猫\n  two  spaces"]:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
