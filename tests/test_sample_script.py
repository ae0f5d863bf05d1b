"""sample.py as users run it: real processes, real kills."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from tube_lightning.checkpoints import load_block_model, save_checkpoint
from tube_lightning.data import token_sequences
from tube_lightning.networks import DiT, DiTConfig
from tube_lightning.orderings import EqualChunks
from tube_lightning.sampling import sample_file, sample_sequences, write_samples

ROOT = Path(__file__).parent.parent
COLUMNS = ["sequence", "tokens", "text"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Save an untrained byte model."""
    config = DiTConfig(
        vocab_size=257,
        model_length=24,
        block_size=4,
        hidden_dim=16,
        cond_dim=4,
        n_blocks=2,
        n_heads=2,
    )
    network = DiT(config)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    folder = tmp_path_factory.mktemp("models") / "model"
    save_checkpoint(folder, network)
    return folder


def start(folder, *options):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "sample.py"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def run(folder, *options, fails=False):
    process = start(folder, *options)
    out, err = process.communicate(timeout=120)
    assert (process.returncode != 0) == fails, err
    return err if fails else out


def write(checkpoint, output, **changes):
    """The same in this process, with the defaults of the configuration."""
    options = {
        "plugin": None,
        "tokenizer": "byte",
        "num_sequences": 6,
        "first_sequence": 0,
        "length": None,
    }
    options |= {"steps": None, "equal_chunks": False, "temperature": 1.0, "nucleus": 1.0, "seed": 0}
    options |= {"batch_size": 4, "device": "cpu", "overwrite": False}
    write_samples(**options | {"checkpoint": str(checkpoint), "output": str(output)} | changes)


def expected_tokens(checkpoint, num_sequences, length, **options):
    """The demo's document separator, byte 0, is given."""
    model = load_block_model(checkpoint)
    options = {"seed": 0, "prompt": torch.tensor([0])} | options
    return torch.cat(list(sample_sequences(model, num_sequences, length, **options)))


def test_parquet(checkpoint, tmp_path):
    out = run(tmp_path, f"checkpoint={checkpoint}", "num_sequences=5", "steps=2", "batch_size=2")
    path = tmp_path / "outputs" / "samples.parquet"
    table = pq.read_table(path)
    assert table.column_names == COLUMNS
    assert [str(table.schema.field(name).type) for name in COLUMNS[::2]] == ["int64", "string"]
    assert table.schema.field("tokens").type.value_type == "int32"
    assert table["sequence"].to_pylist() == [0, 1, 2, 3, 4]
    tokens = expected_tokens(checkpoint, 5, 24, steps=2)
    assert table["tokens"].to_pylist() == tokens.tolist()
    for row, text in zip(tokens.tolist(), table["text"].to_pylist(), strict=True):
        assert text == bytes(row[1:]).decode(errors="replace")
    settings = json.loads(table.schema.metadata[b"tube_lightning"])
    assert settings["checkpoint"] == str(checkpoint)
    assert (settings["seed"], settings["steps"], settings["length"]) == (0, 2, 24)
    assert "5 sequences in outputs/samples.parquet" in out
    assert sorted(os.listdir(tmp_path)) == ["outputs"]
    assert os.listdir(tmp_path / "outputs") == ["samples.parquet"]
    assert torch.equal(token_sequences(path, vocab_size=257).tokens, tokens)  # what train.py reads


def test_demo_names(tmp_path):
    options = {"num_sequences": 2, "length": 16, "steps": 2}
    run(tmp_path, "checkpoint=demo:bd3lm_l8", *(f"{name}={n}" for name, n in options.items()))
    table = pq.read_table(tmp_path / "outputs" / "samples.parquet")
    expected = expected_tokens("demo:bd3lm_l8", **options)
    assert table["tokens"].to_pylist() == expected.tolist()
    settings = json.loads(table.schema.metadata[b"tube_lightning"])
    assert (settings["checkpoint"], settings["model"]["block_size"]) == ("demo:bd3lm_l8", 8)


def test_jsonl(checkpoint, tmp_path):
    path = tmp_path / "deep" / "er" / "x.jsonl"
    options = {"num_sequences": 3, "length": 7, "seed": 9, "steps": 2, "equal_chunks": True}
    write(checkpoint, path, first_sequence=4, **options)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(row) for row in rows] == [COLUMNS] * 3
    assert [row["sequence"] for row in rows] == [4, 5, 6]
    tokens = expected_tokens(checkpoint, 7, 7, seed=9, steps=EqualChunks(2))
    assert [row["tokens"] for row in rows] == tokens[4:].tolist()
    assert [path.name for path in path.parent.iterdir()] == ["x.jsonl"]


def test_help_lists_the_options(tmp_path):
    out = run(tmp_path, "--help")
    for name in (
        "checkpoint",
        "weights",
        "plugin",
        "num_sequences",
        "steps",
        "equal_chunks",
        "nucleus",
        "output",
    ):
        assert f"  {name}=" in out
    assert "python sample.py" in out
    assert "\ncheckpoint: demo:bd3lm_l4 # a folder" in out  # the default, with its comment


def test_an_unknown_option_is_refused(tmp_path):
    assert "temprature" in run(tmp_path, "temprature=2", fails=True)


def test_errors_reach_the_terminal_as_they_are(checkpoint, tmp_path):
    err = run(tmp_path, f"checkpoint={checkpoint}", "temperature=0", fails=True)
    assert "error: temperature: expected a finite number above 0, got 0" in err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_file(checkpoint, tmp_path):
    options = [f"checkpoint={checkpoint}", "num_sequences=60", "batch_size=1", "output=a.parquet"]
    process = start(tmp_path, *options)
    parts = tmp_path / "a.parquet.parts"
    while not (parts / "000003.parquet").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "a.parquet").exists()
    assert len(list(parts.glob("*.parquet"))) < 60
    with pytest.raises(ValueError, match="seed: there 0, now 3"):
        write(checkpoint, tmp_path / "a.parquet", num_sequences=60, batch_size=1, seed=3)
    run(tmp_path, *options)
    assert not parts.exists()
    write(checkpoint, tmp_path / "b.parquet", num_sequences=60, batch_size=1)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_finished_batches_are_not_drawn_again(checkpoint, tmp_path, monkeypatch):
    drawn = []

    def failing(*args, **options):
        for batch in sample_sequences(*args, **options):
            if len(drawn) == 2:
                drawn.clear()
                raise OSError("the power is off")
            drawn.append(options["first_sequence"])
            yield batch

    monkeypatch.setattr(sample_file, "sample_sequences", failing)
    with pytest.raises(OSError, match="power"):
        write(checkpoint, tmp_path / "a.parquet", num_sequences=14)
    write(checkpoint, tmp_path / "a.parquet", num_sequences=14)
    assert drawn == [8, 8]  # two batches of four were there
    monkeypatch.undo()
    write(checkpoint, tmp_path / "b.parquet", num_sequences=14)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_file_is_not_overwritten_unless_asked(checkpoint, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match=r"a\.jsonl is there already.*overwrite=true"):
        write(checkpoint, path)
    assert path.read_text() == "precious"
    write(checkpoint, path, overwrite=True)
    assert len(path.read_text().splitlines()) == 6
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"equal_chunks": True}, "equal_chunks: expected a number of steps"),
        ({"length": 25}, "length: expected 1 to 24"),
        ({"weights": "raw"}, "weights: expected 'ema', got 'raw'"),
        ({"device": "abacus"}, "device: expected auto, cpu, cuda or cuda:N, got 'abacus'"),
        ({"output": "a.csv"}, r"output: expected a name ending in .parquet or .jsonl, got a\.csv"),
        ({"output": "."}, "output"),
    ],
)
def test_bad_options_are_named_and_leave_nothing(
    checkpoint, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        write(checkpoint, **{"output": "a.parquet"} | changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"num_sequences": "many"}, "num_sequences: expected an integer, got 'many'"),
        ({"seed": None}, "seed: expected an integer, got None"),
        ({"steps": 1.5}, "steps: expected an integer or null, got 1.5"),
        ({"nucleus": True}, "nucleus: expected a number, got True"),
    ],
)
def test_what_is_no_number_is_named(option, message):
    with pytest.raises(ValueError, match=message):
        sample_file._check_numbers(option)


def test_another_tokenizer_is_refused(tmp_path):
    network = DiT(DiTConfig(vocab_size=50, model_length=8, block_size=4, hidden_dim=8, n_heads=2))
    save_checkpoint(tmp_path / "model", network)
    with pytest.raises(ValueError, match=r"tokenizer: expected 49 tokens.*got 256 of byte"):
        write(tmp_path / "model", tmp_path / "a.parquet")


def test_retrained_weights_are_other_settings(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sample_file, "_draw_parts", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(checkpoint, tmp_path / "a.parquet")
    network = DiT(load_block_model(checkpoint).config)
    save_checkpoint(tmp_path / "model", network)
    with pytest.raises(ValueError, match=r"another model \(model: other weights\)"):
        write(tmp_path / "model", tmp_path / "a.parquet")


def test_the_first_sample_cannot_steer_the_terminal():
    assert sample_file._printable("a\tb\n\x1b[2Jé\0") == "a\tb\n�[2Jé�"
