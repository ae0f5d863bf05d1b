"""Files of users: each format, and each way in which one can be bad."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tube_lightning.data import ByteTokenizer, pack, read_documents, text_sequences, token_sequences

TEXTS = ["first text", "second\ntext, longer", "", "third: é"]
IDS = [[1, 2, 3], [4, 5, 6]]


def write(path, rows, column):
    """Write rows as the suffix of the path says."""
    table = pa.table({"id": list(range(len(rows))), column: rows})
    if path.name.endswith(".jsonl"):
        lines = [json.dumps({"id": i, column: row}) for i, row in enumerate(rows)]
        path.write_text("\n".join(lines) + "\n\n")
    elif path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    else:
        layout = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, layout(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return path


TABLES = ["rows.jsonl", "rows.parquet", "file.arrow", "stream.arrow"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_text_and_json_lines_may_be_compressed(tmp_path, suffix):
    for name in ("rows.jsonl", "notes.txt", "README.md"):
        path = tmp_path / name
        if name == "rows.jsonl":
            write(path, TEXTS, "text")
        else:
            path.write_text("one\ntwo é")
        packed = tmp_path / f"{name}.{suffix}"
        with pa.CompressedOutputStream(str(packed), {"gz": "gzip", "zst": "zstd"}[suffix]) as sink:
            sink.write(path.read_bytes())
        for lines in (False, True):
            found = list(read_documents(packed, lines=lines))
            assert found == list(read_documents(path, lines=lines)) != []
    refuse_packed = write(tmp_path / "rows.parquet", TEXTS, "text")
    refuse(refuse_packed.rename(tmp_path / "rows.parquet.gz"), "to be compressed")


def test_a_folder_is_all_its_texts_sorted(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.md", "sub/c.txt", "picture.png", ".hidden.txt", "Makefile"):
        (tmp_path / name).write_text(name)
    assert list(read_documents(tmp_path)) == ["a.md", "b.txt", "sub/c.txt"]


def test_the_standard_input_is_a_document_and_is_read_once():
    code = (
        "from tube_lightning.data import read_documents; "
        "print([list(read_documents('-', lines=lines)) for lines in (False, True)])"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, input="one\ntwo", capture_output=True, text=True, check=True)
    assert out.stdout == "[['one\\ntwo'], ['one', 'two']]\n"
    empty = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert "ValueError: -: the standard input is empty" in empty.stderr


@pytest.mark.parametrize("name", TABLES)
def test_one_document_a_row(tmp_path, name):
    path = write(tmp_path / name, TEXTS, "text")
    assert list(read_documents(path)) == TEXTS
    path = write(tmp_path / name, TEXTS, "body")
    assert list(read_documents(str(path), column="body")) == TEXTS


def test_a_text_file_is_one_document_or_one_a_line(tmp_path):
    path = tmp_path / "some.txt"
    path.write_bytes("one é\r\n\n two \nlast".encode())
    assert list(read_documents(path)) == ["one é\r\n\n two \nlast"]
    assert list(read_documents(path, lines=True)) == ["one é", " two ", "last"]


def test_many_files_as_given_and_patterns_sorted(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "odd[1].txt").write_text("odd")
    given = [tmp_path / "c.txt", tmp_path / "[ab].txt", tmp_path / "odd[1].txt"]
    assert list(read_documents(given)) == ["c", "a", "b", "odd"]
    assert list(read_documents(str(tmp_path / "?.txt"))) == ["a", "b", "c"]


@pytest.mark.parametrize("name", TABLES)
def test_text_blocks_pack_the_documents(tmp_path, name):
    path = write(tmp_path / name, TEXTS, "text")
    expected = pack(TEXTS, ByteTokenizer(), 7)
    packed = text_sequences(path, "byte", 7)
    assert packed.sha256 == expected.sha256
    assert packed.source == str(path)
    without = text_sequences([path, path], ByteTokenizer(), 7, append_eos=False)
    assert without.sha256 == pack(TEXTS * 2, ByteTokenizer(), 7, append_eos=False).sha256
    assert without.source == f"{path} and 1 more"


@pytest.mark.parametrize("name", TABLES)
def test_token_ids_a_row(tmp_path, name):
    path = write(tmp_path / name, IDS, "tokens")
    sequences = token_sequences([path, path], 7, tokenizer="byte")
    assert sequences.tokens.tolist() == IDS * 2
    assert sequences.tokens.dtype == torch.int64
    assert sequences.tokenizer == "byte"


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", ">i8"])
def test_token_ids_of_an_array(tmp_path, dtype):
    np.save(tmp_path / "ids.npy", np.array(IDS, dtype=dtype))
    assert token_sequences(tmp_path / "ids.npy", 7).tokens.tolist() == IDS


def test_ids_of_another_writer_and_of_ours_agree(tmp_path):
    np.save(tmp_path / "ids.npy", np.array(IDS))
    hashes = {token_sequences(write(tmp_path / name, IDS, "tokens"), 7).sha256 for name in TABLES}
    assert hashes == {token_sequences(tmp_path / "ids.npy", 7).sha256}


# ---- bad input: every message names the file


def refuse(path, message, read=read_documents, error=ValueError, **options):
    with pytest.raises(error, match=message) as caught:
        list(read(path, **options))
    assert path.name in str(caught.value)


def read_ids(path, vocab_size=7):
    return token_sequences(path, vocab_size).tokens


def test_no_file(tmp_path):
    refuse(tmp_path / "no.txt", "no such file", error=FileNotFoundError)
    refuse(tmp_path / "*.txt", "no file matches it as a pattern", error=FileNotFoundError)
    refuse(tmp_path, r"expected a folder with files ending in \.txt, .*, got 0 other files")
    with pytest.raises(ValueError, match="paths: expected at least one file, got none"):
        read_documents([])


def test_missing_files_are_found_missing_before_anything_is_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_documents(tmp_path / "no.txt")


def test_unknown_suffix(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b")
    refuse(path, r"expected a file ending in \.txt, \.md, \.jsonl, .* also with \.gz, \.zst")
    refuse(path, r"expected a file ending in \.npy, \.jsonl, \.parquet, \.arrow", read_ids)


@pytest.mark.parametrize("name", ["e.txt", "e.jsonl", "e.parquet", "e.arrow"])
def test_empty_file(tmp_path, name):
    (tmp_path / name).touch()
    refuse(tmp_path / name, "the file is empty")


def test_empty_token_file(tmp_path):
    (tmp_path / "e.npy").touch()
    refuse(tmp_path / "e.npy", "the file is empty", read_ids)


def test_no_document_in_a_file(tmp_path):
    path = write(tmp_path / "rows.parquet", pa.array([], pa.string()), "text")
    with pytest.raises(ValueError, match=r"rows\.parquet: expected at least one document, got non"):
        text_sequences(path, "byte", 4)
    refuse(
        write(tmp_path / "rows.parquet", pa.array([], pa.list_(pa.int64())), "tokens"),
        "expected at least one sequence, got none",
        read_ids,
    )


@pytest.mark.parametrize("name", TABLES)
def test_missing_column(tmp_path, name):
    path = write(tmp_path / name, TEXTS, "body")
    refuse(path, "expected a column 'text', found 'id', 'body'")


@pytest.mark.parametrize("name", ["bad.txt", "bad.jsonl", "bad.parquet", "bad.arrow"])
def test_unreadable(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\xfe not what the name says \xff" * 4)
    refuse(tmp_path / name, f"cannot be read as {name[4:]}")


@pytest.mark.parametrize("name", ["cut.parquet", "file.arrow", "stream.arrow"])
def test_truncated(tmp_path, name):
    path = write(tmp_path / name, TEXTS * 100, "text")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refuse(path, "cannot be read as")


def test_bad_lines_not_utf8(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"fine\n\xff\n")
    refuse(path, "cannot be read as txt", lines=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', "line 2 is not JSON"),
        ("[1, 2]", "expected an object a line, got"),
        ('{"text": null}', "row 1 has no value in the column 'text'"),
        ('{"text": 3}', "expected text in 'text', got int in row 1"),
        ("{}", "expected a column 'text', found none"),
    ],
)
def test_bad_json_line(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    refuse(path, message)


@pytest.mark.parametrize("name", TABLES)
def test_no_value_in_a_row(tmp_path, name):
    refuse(write(tmp_path / name, ["a", None], "text"), "row 1 has no value in the column 'text'")


@pytest.mark.parametrize("name", TABLES)
def test_ids_outside_the_vocabulary(tmp_path, name):
    path = write(tmp_path / name, IDS, "tokens")
    refuse(path, r"ids in 0\.\.5, got 6 in sequence 1 at position 2", read_ids, vocab_size=6)
    path = write(tmp_path / name, [[0, -1]], "tokens")
    refuse(path, r"ids in 0\.\.6, got -1 in sequence 0 at position 1", read_ids)


def test_ragged_ids(tmp_path):
    path = write(tmp_path / "rows.parquet", [[1, 2], [3]], "tokens")
    refuse(path, "expected sequences of one length, got 2 tokens in row 0 and 1 in row 1", read_ids)
    first = write(tmp_path / "first.parquet", [[1, 2]], "tokens")
    with pytest.raises(
        ValueError, match=r"rows\.parquet: expected sequences of 2 tokens as in the"
    ):
        token_sequences([first, write(path, [[3]], "tokens")], 7)


@pytest.mark.parametrize("value", ["text", [1.5, 2.0], [], [True, False], [[1], [2]]])
def test_rows_that_are_no_ids(tmp_path, value):
    path = write(tmp_path / "rows.jsonl", [value], "tokens")
    refuse(path, "expected a list of integers, got .* in row 0", read_ids)


@pytest.mark.parametrize(
    "array", [np.arange(4), np.zeros((2, 2)), np.zeros((0, 4), dtype=int), np.array([["a"]])]
)
def test_arrays_that_are_no_sequences(tmp_path, array):
    np.save(tmp_path / "ids.npy", array)
    refuse(tmp_path / "ids.npy", r"expected integers \[sequences, length\], got", read_ids)


def test_arrays_are_never_unpickled(tmp_path):
    np.save(tmp_path / "ids.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    refuse(tmp_path / "ids.npy", "cannot be read as npy", read_ids)
