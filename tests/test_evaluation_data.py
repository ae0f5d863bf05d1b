"""What an evaluation reads: lazily, document by document if asked, and refused early if bad."""

import hashlib
import subprocess
import sys
from pathlib import Path

import hydra
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tube_lightning.data import (
    CORPORA,
    AtMost,
    ByteTokenizer,
    TokenDataModule,
    TokenSequences,
    check_fits,
    cut_documents,
    demo_sequences,
    evaluation_sequences,
    pack,
    token_sequences,
)

ROOT = Path(__file__).parent.parent
DOCUMENTS = st.lists(st.text("abc", max_size=9), max_size=6)
VOCAB_SIZE = 257


def ids(documents, append_eos):
    """The ids of each document, by hand."""
    return [[*document.encode(), *([0] if append_eos else [])] for document in documents]


class Watched:
    """Documents that remember how many of them were taken."""

    def __init__(self, documents):
        self.documents, self.taken = documents, 0

    def __iter__(self):
        for document in self.documents:
            self.taken += 1
            yield document


# ---- so many sequences and no more


@given(DOCUMENTS, st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_first_sequences_of_a_stream(documents, length, most, append_eos):
    stream = [token for row in ids(documents, append_eos) for token in row]
    if len(stream) < length:
        return
    packed = pack(documents, ByteTokenizer(), length, max_sequences=most, append_eos=append_eos)
    kept = min(len(stream) // length, most) * length
    assert packed.tokens.flatten().tolist() == stream[:kept]
    assert packed.num_dropped == (0 if kept == most * length else len(stream) - kept)


@pytest.mark.parametrize(("most", "taken"), [(1, 1), (2, 2), (3, 2), (4, 3)])
@pytest.mark.parametrize("cut", [pack, cut_documents])
def test_nothing_is_read_beyond_the_last_sequence(cut, most, taken):
    documents = Watched(["abcd", "efghijkl", "mnop", "\0 is refused"])
    sequences = cut(documents, ByteTokenizer(), 4, max_sequences=most, append_eos=False)
    assert (len(sequences), documents.taken) == (most, taken)
    assert sequences.num_dropped == 0


@pytest.mark.parametrize("cut", [pack, cut_documents])
def test_no_sequence_asked_for(cut):
    with pytest.raises(ValueError, match="max_sequences: expected at least 1, got 0"):
        cut(["abc"], ByteTokenizer(), 2, max_sequences=0)


# ---- document by document


@given(DOCUMENTS, st.integers(2, 5), st.booleans(), st.integers(1, 8) | st.none())
def test_each_document_starts_its_own_sequence(documents, length, append_eos, most):
    windows = [
        row[start : start + length]
        for row in ids(documents, append_eos)
        for start in range(0, len(row), length)
    ]
    scored = [window for window in windows if len(window) > 1][:most]
    options = {"append_eos": append_eos, "max_sequences": most}
    if not scored:
        with pytest.raises(ValueError, match=r"at least one document|at least 2 tokens, got none"):
            cut_documents(documents, ByteTokenizer(), length, **options)
        return
    sequences = cut_documents(documents, ByteTokenizer(), length, **options)
    assert sequences.lengths.tolist() == [len(window) for window in scored]
    assert sequences.tokens.tolist() == [[*w, *[0] * (length - len(w))] for w in scored]
    assert sequences.num_tokens == sum(map(len, scored))
    if most is None:
        assert sequences.num_dropped == sum(len(window) == 1 for window in windows)


def test_sequences_of_one_token_have_nothing_to_score():
    with pytest.raises(ValueError, match="length: expected at least 2 tokens a sequence, got 1"):
        cut_documents(["abc"], ByteTokenizer(), 1)


def test_lengths_enter_the_hash_and_only_then():
    tokens = torch.tensor([[7, 8, 0], [9, 0, 0]])
    packed = TokenSequences(tokens, "test", "byte")
    apart = TokenSequences(tokens, "test", "byte", lengths=torch.tensor([2, 1]))
    other = TokenSequences(tokens, "test", "byte", lengths=torch.tensor([3, 1]))
    assert len({packed.sha256, apart.sha256, other.sha256}) == 3
    values = (2, 3, 7, 8, 0, 9, 0, 0, 2, 1)
    expected = hashlib.sha256(b"".join(v.to_bytes(8, "little") for v in values)).hexdigest()
    assert apart.sha256 == expected
    assert (packed.num_tokens, apart.num_tokens, apart.length) == (6, 3, 3)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([0, 1], r"lengths: expected 1\.\.3 tokens, got 0"),
        ([2, 4], r"lengths: expected 1\.\.3 tokens, got 4"),
        ([1, 1], "tokens: expected id 0 after the end of a sequence, got 8"),
    ],
)
def test_bad_lengths(lengths, message):
    tokens = torch.tensor([[7, 8, 0], [9, 0, 0]])
    with pytest.raises(ValueError, match=message):
        TokenSequences(tokens, "test", "byte", lengths=torch.tensor(lengths))


# ---- a user's files


def evaluate(path, **options):
    options = {"tokenizer": "byte", "length": 4, "vocab_size": VOCAB_SIZE, **options}
    return evaluation_sequences(path, **options)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["one two", "three"], "body": ["x" * 9, "yy"]}), path)
    return path


def test_text_is_packed_or_kept_apart(table):
    assert evaluate(table).sha256 == pack(["one two", "three"], ByteTokenizer(), 4).sha256
    apart = evaluate(table, per_document=True, append_eos=False)
    assert apart.lengths.tolist() == [4, 3, 4]
    assert apart.num_dropped == 1
    assert evaluate([table, str(table)], max_sequences=5).tokens.shape == (5, 4)
    shouted = evaluate(table, column="body", detokenize=str.upper, max_sequences=1)
    assert ByteTokenizer().decode(shouted.tokens[0]) == "XXXX"


def test_bytes_are_those_of_the_detokenized_text(table):
    options = {"tokenizer": "demo", "vocab_size": 1025, "length": 64, "per_document": True}
    text = evaluate(table, detokenize=lambda text: f"{text} naïve", **options)
    expected = [len(document.encode()) for document in ("one two naïve", "three naïve")]
    assert text.token_bytes.sum(dim=1).tolist() == expected


def test_lines_of_text(tmp_path):
    (tmp_path / "some.txt").write_text("ab\n\ncd\n")
    assert evaluate(tmp_path / "some.txt", lines=True, length=3).tokens.tolist() == [
        [97, 98, 0],
        [99, 100, 0],
    ]


def test_arrays_of_token_ids(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(12, dtype=np.uint16).reshape(3, 4))
    sequences = evaluate(tmp_path / "rows.npy", max_sequences=2)
    assert sequences.tokens.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (sequences.tokenizer, sequences.num_dropped) == ("byte", 0)
    assert sequences.token_bytes is sequences.documents is sequences.num_scored_bytes is None
    with pytest.raises(ValueError, match=r"rows\.npy: expected sequences of 6 tokens, got 4"):
        evaluate(tmp_path / "rows.npy", length=6)


def test_sequences_of_token_ids_keep_their_length_where_none_is_asked_for(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(12).reshape(3, 4))
    assert evaluate(tmp_path / "rows.npy", length=AtMost(6)).length == 4
    with pytest.raises(ValueError, match=r"rows\.npy: expected sequences of 3 tokens, got 4"):
        evaluate(tmp_path / "rows.npy", length=AtMost(3))
    np.save(tmp_path / "stream.npy", np.arange(12))
    assert evaluate(tmp_path / "stream.npy", length=AtMost(6)).length == 6


@pytest.mark.parametrize(("most", "num_rows", "dropped"), [(None, 3, 1), (3, 3, 0), (2, 2, 0)])
def test_streams_of_token_ids(tmp_path, most, num_rows, dropped):
    np.save(tmp_path / "a.npy", np.arange(6))
    np.save(tmp_path / "b.npy", np.arange(6, 13))
    sequences = evaluate(str(tmp_path / "*.npy"), max_sequences=most)
    assert sequences.tokens.flatten().tolist() == list(range(4 * num_rows))
    assert sequences.num_dropped == dropped


def test_samples_as_token_ids(tmp_path):
    path = tmp_path / "samples.parquet"
    pq.write_table(pa.table({"sequence": [0, 1], "tokens": [[1, 2], [3, 4]]}), path)
    assert token_sequences(path, vocab_size=5, length=2, max_sequences=1).tokens.tolist() == [
        [1, 2]
    ]
    with pytest.raises(ValueError, match=r"samples\.parquet: expected sequences of 3 tokens, got"):
        token_sequences(path, vocab_size=5, length=3)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.arange(3), "at least one full sequence of 4 tokens, got 3 tokens in all"),
        (np.array([1, 2, 257, 3]), r"ids in 0\.\.256, got 257 at position 2"),
        (np.array([[1, 2, -1, 3]]), r"ids in 0\.\.256, got -1 in sequence 0 at position 2"),
        (np.zeros((1, 1, 4), dtype=int), r"or one stream \[tokens\], got int64 \(1, 1, 4\)"),
        (np.zeros(4), r"or one stream \[tokens\], got float64"),
    ],
)
def test_bad_arrays(tmp_path, array, message):
    np.save(tmp_path / "ids.npy", array)
    with pytest.raises(ValueError, match=rf"ids\.npy: expected .*{message}"):
        evaluate(tmp_path / "ids.npy")


def test_arrays_that_do_not_go_together(tmp_path, table):
    np.save(tmp_path / "rows.npy", np.arange(4).reshape(1, 4))
    np.save(tmp_path / "stream.npy", np.arange(4))
    paths = [tmp_path / "rows.npy", tmp_path / "stream.npy"]
    with pytest.raises(
        ValueError, match=r"stream\.npy: expected integers \[sequences, length\] as"
    ):
        evaluate(paths)
    with pytest.raises(ValueError, match=r"rows\.parquet: expected \.npy as the other files"):
        evaluate([paths[0], table])
    with pytest.raises(ValueError, match=r"per_document: expected files of text, got token ids in"):
        evaluate(paths[0], per_document=True)


def test_bad_files(tmp_path, table):
    with pytest.raises(ValueError, match=r"data\.path: expected a file, .* got none"):
        evaluate(None)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match=r"empty\.txt: the file is empty"):
        evaluate(tmp_path / "empty.txt")
    (tmp_path / "rows.csv").write_text("a,b")
    with pytest.raises(ValueError, match=r"rows\.csv: expected a file ending in .*\.npy"):
        evaluate(tmp_path / "rows.csv")
    (tmp_path / "no_suffix").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="no_suffix: cannot be read as txt"):
        evaluate(tmp_path / "no_suffix")
    with pytest.raises(ValueError, match=r"expected a column 'no', found 'text', 'body'"):
        evaluate(table, column="no")
    with pytest.raises(ValueError, match=r"rows\.parquet: expected at least one full sequence of"):
        evaluate(table, length=100)


@pytest.mark.parametrize("vocab_size", [256, 257])
def test_tokenizers_that_fit(vocab_size):
    check_fits(ByteTokenizer(), vocab_size)


@pytest.mark.parametrize("vocab_size", [255, 258, 50258])
def test_tokenizers_that_do_not_fit(table, vocab_size):
    message = rf"tokenizer: expected {vocab_size - 1} tokens .* got 256 of byte"
    with pytest.raises(ValueError, match=message):
        evaluate(table, vocab_size=vocab_size)
    with pytest.raises(ValueError, match=message):
        demo_sequences("heldout", tokenizer="byte", vocab_size=vocab_size)


# ---- configurations


def compose(*overrides, name="train"):
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        return hydra.compose(name, list(overrides))


GROUP = sorted(path.stem for path in (ROOT / "configs/data").glob("*.yaml"))


def test_every_corpus_has_a_configuration_of_its_name():
    assert set(CORPORA) <= set(GROUP)


@pytest.mark.parametrize("option", GROUP)
def test_every_choice_has_roles_and_resolves_without_a_model_group(option):
    data = OmegaConf.create({"data": compose(f"data={option}").data})
    roles = OmegaConf.to_container(data, resolve=True)["data"]
    assert "_target_" not in roles
    assert {"train", "validation", "test"} <= set(roles)
    assert {"length", "vocab_size"}.isdisjoint(roles["test"])


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_is_read_as_its_configuration_says(tmp_path, name):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"{CORPORA[name].column}": "some text"}}\n')
    config = compose(f"data={name}", f"data.path={path}")
    assert config.data.tokenizer == ("bert-base-uncased" if name == "lm1b-wrap" else "gpt2")
    make = instantiate(config.data.test, tokenizer="byte")
    sequences = make(length=4, vocab_size=257, max_sequences=1)
    assert sequences.tokens.shape == (1, 4)
    assert sequences.source == f"{name} ({path})"


def test_text_and_tokens_by_their_configurations(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("text of a user")
    paths = f"data.path=[{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}]"
    options = ["data=text", paths, "data.per_document=true", "data.tokenizer=byte"]
    make = instantiate(compose(*options).data.test)
    assert make(length=8, vocab_size=257, max_sequences=None).lengths.tolist() == [8, 7] * 2
    np.save(tmp_path / "ids.npy", np.ones((3, 4), dtype=int))
    make = instantiate(compose("data=tokens", f"data.path={tmp_path / 'ids.npy'}").data.test)
    assert len(make(length=4, vocab_size=2, max_sequences=None)) == 3
    for option in ("text", "tokens"):
        make = instantiate(compose(f"data={option}").data.test)
        with pytest.raises(ValueError, match=r"data\.path: expected a file"):
            make(length=4, vocab_size=257, max_sequences=None)


def test_own_text_has_the_embedded_tokenizer_that_fits(tmp_path):
    (tmp_path / "text.txt").write_text("text of a user " * 9)
    config = compose("data=text", f"data.path={tmp_path / 'text.txt'}")
    assert config.data.tokenizer == config.network.tokenizer == "demo"
    auto = OmegaConf.create({"data": OmegaConf.to_container(config.data)})  # as evaluate.py has it
    assert auto.data.test.tokenizer == "auto"
    make = instantiate(auto.data.test)
    for vocab_size, name in ((256, "byte"), (257, "byte"), (1024, "demo"), (1025, "demo")):
        assert make(length=8, vocab_size=vocab_size).tokenizer == name
    with pytest.raises(ValueError, match=r"got 'auto', for a model of 50,258 tokens.*1,024 \(demo"):
        make(length=8, vocab_size=50258)


def test_the_demo_by_its_configuration():
    make = instantiate(compose("data=demo").data.test)
    sequences = make(length=64, vocab_size=1025, max_sequences=3)
    assert sequences.tokens.shape == (3, 64)
    assert torch.equal(sequences.tokens, demo_sequences("heldout", 64).tokens[:3])
    make = instantiate(compose("data=demo", "data.per_document=true").data.test)
    assert make(length=64, vocab_size=1025, max_sequences=3).lengths is not None


def test_training_reads_the_files_of_its_roles(tmp_path):
    (tmp_path / "train.txt").write_text("x" * 99)
    (tmp_path / "validation.txt").write_text("y" * 99)
    files = [f"data.{role}.paths={tmp_path}/{role}.txt" for role in ("train", "validation")]
    for option in ("text", "lm1b"):
        overrides = [
            f"data={option}",
            "data.tokenizer=byte",
            "network.length=9",
            "network.vocab_size=257",
            *files,
        ]
        data = instantiate(compose(*overrides, "batch_size=2").datamodule)
        assert isinstance(data, TokenDataModule)
        data.setup("fit")
        assert (data.train_sequences.length, data.batch_size) == (9, 2)
        assert data.train_sequences.source.endswith("train.txt")
        assert set(data.validation_sequences.tokens[0].tolist()) == {ord("y")}


@pytest.mark.parametrize("option", GROUP)
def test_a_training_run_can_record_any_choice(option):
    config = OmegaConf.to_container(compose(f"data={option}"), resolve=True)
    assert config["datamodule"]["train"] == config["data"]["train"]


def test_importing_the_data_stage_does_not_import_lightning():
    code = "import sys, tube_lightning.data as d; assert 'lightning' not in sys.modules; "
    code += (
        "assert d.TokenDataModule.__name__ == 'TokenDataModule'; assert 'lightning' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_other_names_are_still_unknown():
    import tube_lightning.data

    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        tube_lightning.data.Nothing  # noqa: B018
