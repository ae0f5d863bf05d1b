"""Bits per byte: bytes counted by spelling tokens, and values from the parquet files alone."""

import io
import json
import math
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import tokenizers
import torch
import transformers
from evaluation_runs import MODELS, results, run, run_here, values
from report_runs import Run, strict
from rich.console import Console

from tests.networks import random_model, random_tokens
from tube_lightning import evaluate
from tube_lightning.data import TokenSequences
from tube_lightning.protocol import Protocol
from tube_lightning.report import write_report
from tube_lightning.report.__main__ import main
from tube_lightning.report.render import show_results
from tube_lightning.report.render.captions import legend

LENGTH, SIZE = 8, 4
MERGES = ["t h", "th e", "a n", "i n", "e r", "o n", "é 🎉"]
PIECES = ["<end>", "<unk>", *"abcdefghijklmnopqrstuvwxyz \né猫🎉"]
VOCABULARY = {piece: i for i, piece in enumerate([*PIECES, *(m.replace(" ", "") for m in MERGES)])}
DOCUMENTS = ["the other café🎉 in the north", "on and on", "", "é", "猫 in an inner then", "theory"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text, and a tokenizer with the 40 ids of the tiny networks."""
    folder = tmp_path_factory.mktemp("bits")
    merges = [tuple(merge.split()) for merge in MERGES]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(VOCABULARY, merges, unk_token="<unk>"))
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    wrapped.save_pretrained(folder / "tokenizer")
    lines = [json.dumps({"text": document}) for document in DOCUMENTS]
    (folder / "text.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def options(folder):
    tokens = ["data.tokenizer=tokenizer", f"length={LENGTH}", "batch_size=2"]
    return [*MODELS, "data=text", "data.path=text.jsonl", *tokens]


def pieces_of(document):
    """Tokenise by the rule of BPE: join neighbours, the first merge of the list first."""
    pieces = list(document)
    for merge in MERGES:
        left, right = merge.split()
        at = 0
        while at < len(pieces) - 1:
            if pieces[at : at + 2] == [left, right]:
                pieces[at : at + 2] = [left + right]
            at += 1
    return [*pieces, "<end>"]


def windows(per_document):
    """Cut the text as evaluate.py does; a sequence of one piece has nothing to score."""
    streams = [pieces_of(document) for document in DOCUMENTS]
    if not per_document:
        whole = [piece for stream in streams for piece in stream]
        streams = [whole[: len(whole) // LENGTH * LENGTH]]
    cut = [s[first : first + LENGTH] for s in streams for first in range(0, len(s), LENGTH)]
    return [window for window in cut if len(window) > 1]


def bytes_by_hand(window, num_blocks):
    """Spell the scored pieces of each block: not the first, and no byte for an end."""
    spelled = [0 if piece == "<end>" else len(piece.encode()) for piece in window]
    spelled[0] = 0
    padded = spelled + [0] * (num_blocks * SIZE - len(spelled))
    return [sum(padded[first : first + SIZE]) for first in range(0, len(padded), SIZE)]


def table_of(directory):
    parts = sorted((directory / "scores").glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def bits_by_hand(rows, read):
    nats = math.fsum(read(row) for row in rows if row["num_tokens"])
    return -nats / math.log(2) / sum(row["num_bytes"] for row in rows)


def check_values(directory):
    """Compare every likelihood with what the files say; return the number of bytes."""
    rows, told = table_of(directory), results(directory)
    assert told["counts"]["bytes"] == sum(row["num_bytes"] for row in rows)
    assert told["arm"]["bits_per_byte"] == pytest.approx(
        bits_by_hand(rows, lambda row: row["arms.arm"]), rel=1e-12
    )
    for regime, estimates in told["regimes"].items():
        exact, scores = (f"regimes.{regime}.{name}" for name in ("exact", "scores"))
        for name, read in (
            ("exact", lambda row, exact=exact: row[exact]),
            ("elbo", lambda row, scores=scores: np.mean(row[scores])),
            ("elbo_k", lambda row, scores=scores: np.log(np.mean(np.exp(row[scores])))),
        ):
            bits = bits_by_hand(rows, read)
            assert estimates[name]["bits_per_byte"] == pytest.approx(bits, rel=1e-9)
    return told["counts"]["bytes"]


# ---- evaluate.py


@pytest.fixture(scope="module")
def whole(folder, options):
    """Evaluate in two processes: the directory, and what was on the screen."""
    out, _ = run(folder, *options, "output_dir=two", "trainer.devices=2")
    return folder / "two", out


@pytest.mark.parametrize("per_document", [False, True])
def test_bytes_and_values_of_a_text(monkeypatch, folder, options, whole, per_document):
    name = f"apart_{per_document}"
    chosen = [f"data.per_document={per_document}", f"output_dir={name}"]
    run_here(monkeypatch, folder, *options, *chosen)
    expected = [
        count
        for window in windows(per_document)
        for count in bytes_by_hand(window, num_blocks=LENGTH // SIZE)
    ]
    rows = table_of(folder / name)
    found = {(row["sequence"], row["block"]): row["num_bytes"] for row in rows}
    places = [(s, b) for s in range(len(windows(per_document))) for b in range(LENGTH // SIZE)]
    assert [found.pop(place, 0) for place in places] == expected  # short batches have no block 1
    assert not found
    assert (
        check_values(folder / name) == sum(expected) != results(folder / name)["counts"]["tokens"]
    )
    if not per_document:
        assert values(folder / name) == values(whole[0])


def test_one_line_below_the_table(whole):
    directory, out = whole
    told = results(directory)
    arm, exact = (
        f"{estimate['bits_per_byte']:.4f}"
        for estimate in (told["arm"], told["regimes"]["ao_arm"]["exact"])
    )
    counts = told["counts"]
    line = f"Bits per byte: {arm} (ARM), = {exact} (AO-ARM); "
    line += f"{counts['tokens']} tokens of {counts['bytes']} bytes."
    for text in (out, *((directory / name).read_text() for name in ("table.md", "table.tex"))):
        assert text.count(line) == text.count("Bits per byte") == 1
    assert "byte" not in told["verdict"]


@pytest.mark.usefixtures("no_figures")
def test_the_report_again_is_the_same(whole, tmp_path):
    directory, _ = whole
    assert main([str(directory), "--output", str(tmp_path)]) == 0
    assert values(tmp_path) == values(directory)
    assert (tmp_path / "table.md").read_text() == (directory / "table.md").read_text()


def test_files_of_an_older_layout_are_not_continued(monkeypatch, capsys, folder, options, whole):
    claim = whole[0] / "config.json"
    before = claim.read_text()
    try:
        claim.write_text(json.dumps({**json.loads(before), "layout_of_scores": 2}))
        with pytest.raises(SystemExit):
            run_here(monkeypatch, folder, *options, "output_dir=two")
    finally:
        claim.write_text(before)
    told = capsys.readouterr().err
    assert "with another layout_of_scores (layout_of_scores: there 2, now 4); choose" in told


# ---- notebooks


QUICK = Protocol(num_orderings=2, nfe=[])
TOKENS = random_tokens(3, 8)


def all_estimates(told):
    yield from (e for regime in told["regimes"].values() for e in regime.values())
    yield from (arm for arm in (told["arm"], told["arm_ft"]) if arm is not None)


def test_bare_tokens_have_no_bytes(tmp_path, capsys):
    told = evaluate(random_model(4), TOKENS, protocol=QUICK, output_dir=tmp_path)
    assert told["counts"]["bytes"] is None
    assert {estimate["bits_per_byte"] for estimate in all_estimates(told)} == {None}
    assert "Bits per byte" not in capsys.readouterr().out + (tmp_path / "table.md").read_text()
    assert all("num_bytes" not in row for row in table_of(tmp_path))


def test_the_bytes_of_a_run_stay_the_same(tmp_path):
    """The same ids may be of another text: white space that a tokenizer drops."""

    def told(token_bytes):
        text = TokenSequences(TOKENS, "tokens", "none", token_bytes=token_bytes)
        return evaluate(random_model(4), text, protocol=QUICK, output_dir=tmp_path, show=False)

    threes = torch.full((3, 8), 3, dtype=torch.int32)
    first, again = told(threes), told(threes.clone())
    assert first["counts"]["bytes"] == 3 * 3 * 7
    assert first["regimes"] == again["regimes"]
    exact = first["regimes"]["ao_arm"]["exact"]
    assert exact["bits_per_byte"] == pytest.approx(-exact["nats_per_token"] / 3 / math.log(2))
    for other, count in ((threes + 1, 84), (None, None)):
        with pytest.raises(ValueError, match=f"num_bytes: there 63, now {count}"):
            told(other)


def test_a_text_of_ends_has_no_bytes_to_divide_by(tmp_path):
    nothing = torch.zeros(3, 8, dtype=torch.int32)
    text = TokenSequences(TOKENS, "tokens", "none", token_bytes=nothing)
    told = evaluate(random_model(4), text, protocol=QUICK, show=False)
    assert told["counts"]["bytes"] == 0
    assert {estimate["bits_per_byte"] for estimate in all_estimates(told)} == {None}
    assert not any("Bits" in line for line in legend(told))


# ---- reports


@pytest.mark.usefixtures("no_figures")
def test_one_part_without_bytes_leaves_them_unknown(tmp_path):
    Run().write(tmp_path)
    part = tmp_path / "scores" / "batch_000001.parquet"
    pq.write_table(pq.read_table(part).drop_columns(["num_bytes"]), part)
    write_report(tmp_path, show=False)
    told = strict((tmp_path / "results.json").read_text())
    assert told["counts"]["bytes"] is None
    assert {estimate["bits_per_byte"] for estimate in all_estimates(told)} == {None}
    assert "Bits" not in (tmp_path / "table.md").read_text()


def line_of(told):
    [line] = [line for line in legend(told) if line.startswith("Bits per byte: ")]
    return line


def bits(estimate):
    return f"{estimate['bits_per_byte']:.4f}"


@pytest.mark.usefixtures("no_figures")
def test_a_bracket_has_both_ends(tmp_path):
    Run().write(tmp_path, exact=False)
    told = write_report(tmp_path, show=False)
    ours = told["regimes"]["ao_arm"]
    low, high, arm = bits(ours["tube"]), bits(ours["elbo_k"]), bits(told["arm"])
    assert f": {arm} (ARM), >= {low} and <= {high} (AO-ARM); 37 tokens of " in line_of(told)
    assert f"≥ {low} and ≤ {high} (AO-ARM)" in (tmp_path / "table.md").read_text()
    assert rf"$\geq$ {low} and $\leq$ {high} (AO-ARM)" in (tmp_path / "table.tex").read_text()
    stream = io.StringIO()
    show_results(told, Console(file=stream, width=80))
    assert line_of(told) in stream.getvalue()


@pytest.mark.usefixtures("no_figures")
def test_a_bank_has_the_split_and_its_own_mean(tmp_path):
    Run(bank=True, elbo_seeds=3).write(tmp_path, exact=False, arm=False)
    told = write_report(tmp_path, show=False)
    ours = told["regimes"]["ao_arm"]
    ends = f">= {bits(ours['tube_split'])} and <= {bits(ours['elbo_k'])}"
    assert line_of(told).startswith(f"Bits per byte: {ends} (AO-ARM); ")


@pytest.mark.usefixtures("no_figures")
def test_one_step_is_one_number(tmp_path):
    Run().write(tmp_path, exact=False, arm=False)
    told = write_report(tmp_path, show=False)
    told["regimes"] = {"nfe_1": told["regimes"]["nfe_1"]}
    value = bits(told["regimes"]["nfe_1"]["elbo_k"])
    assert line_of(told).startswith(f"Bits per byte: {value} (NFE = 1); ")


@pytest.mark.usefixtures("no_figures")
def test_infinite_values_are_left_out(tmp_path):
    impossible = Run()
    impossible.exact["ao_arm"][1][0] = -math.inf
    told = write_report(impossible.write(tmp_path), show=False)
    assert told["regimes"]["ao_arm"]["exact"]["bits_per_byte"] is None
    assert re.fullmatch(
        r"Bits per byte: \d\.\d{4} \(ARM\); 37 tokens of \d+ bytes\.", line_of(told)
    )
