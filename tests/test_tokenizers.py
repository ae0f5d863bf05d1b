"""Tokenizers: bytes, and fast tokenizers in the layouts that people have on disk."""

import json

import pytest
import tokenizers
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from tube_lightning.data import ByteTokenizer, TextTokenizer, load_tokenizer, pack

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


def test_bert_ends_documents_with_sep_and_has_its_own_mask(tmp_path):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, "the", "cat", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
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
