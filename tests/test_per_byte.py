"""An ARM of another tokenizer: sums over the same bytes, against loops over single bytes."""

import json
import math
import re

import pytest
import torch
from evaluation_runs import error_line, results, run_here
from tiny_gpt import save_tiny_gpt

from tube_lightning import conditional_table, load_arm, load_block_model
from tube_lightning.data import load_tokenizer
from tube_lightning.lattice import exact_log_likelihood
from tube_lightning.orderings import block_roles

LENGTH, ARM_LENGTH, BLOCK = 32, 24, 4
DOCUMENTS = [
    f"Text {n}: naïve café, {n * n} times — to be or not to be; \N{SNOWMAN} the end. " * (1 + n % 3)
    for n in range(9)
] + ["静かな湖畔の森のかげから、もう起きちゃいかがと、かっこうが鳴く。" * 3]  # three tokens each


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A causal model of transformers with a byte-level tokenizer of its own, and some documents."""
    folder = tmp_path_factory.mktemp("per_byte")
    lines = (json.dumps({"text": text}) + "\n" for text in DOCUMENTS)
    (folder / "documents.jsonl").write_text("".join(lines))
    save_tiny_gpt(folder / "gpt", DOCUMENTS, length=ARM_LENGTH)
    return folder


OPTIONS = [
    "data=text",
    "data.path=documents.jsonl",
    "arm.checkpoint=gpt",
    "arm_ft.checkpoint=none",
    "trainer.accelerator=cpu",
    f"length={LENGTH}",
]


@pytest.fixture(scope="module")
def run(folder):
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch, folder, *OPTIONS, "arm.tokenizer=gpt", "output_dir=run", "batch_size=7")
    return results(folder / "run")


def token_spans(tokenizer):
    """List (id, document, its bytes) of all tokens; the end of a document is a byte more."""
    spans = []
    for number, text in enumerate(DOCUMENTS):
        encoded, place = tokenizer.encode(text), 0
        for token, width in zip(encoded.ids, encoded.num_bytes, strict=True):
            spans.append((int(token), number, range(place, place + width)))
            place += int(width)
        assert place == len(text.encode())
        spans.append((tokenizer.eos_id, number, range(place, place + 1)))
    return spans


def windows_of(spans, length):
    return [spans[i : i + length] for i in range(0, len(spans) - length + 1, length)]


def keys(window, positions):
    """Name the bytes of some tokens; a token without bytes goes with the next byte."""
    found = set()
    for position in positions:
        _, document, place = window[position]
        found |= {(document, byte) for byte in place} or {(document, place.start)}
    return found


def half_given(window, positions):
    return any(all(not len(window[t][2]) for t in range(position)) for position in positions)


def arm_units(folder):
    arm, tokenizer = load_arm(folder / "gpt"), load_tokenizer(str(folder / "gpt"))
    for window in windows_of(token_spans(tokenizer), ARM_LENGTH):
        nats = arm.token_log_probs(torch.tensor([[token for token, *_ in window]]))[0]
        for position in range(1, ARM_LENGTH):
            if not half_given(window, [position]):
                yield keys(window, [position]), nats[position - 1].item()


def model_units():
    model, tokenizer = load_block_model("demo:bd3lm_l4"), load_tokenizer("demo")
    roles = block_roles(LENGTH, BLOCK)
    for window in windows_of(token_spans(tokenizer), LENGTH):
        tokens = torch.tensor([[token for token, *_ in window]])
        nats = exact_log_likelihood(conditional_table(model, tokens, roles=roles))[0]
        for block, value in enumerate(nats.tolist()):
            positions = [t for t in range(block * BLOCK, (block + 1) * BLOCK) if t > 0]
            if not half_given(window, positions):
                yield keys(window, positions), value


def joined(units):
    """Join units that have a byte in common, until none do: sets of (side, number)."""
    groups = []
    for side, members in enumerate(units):
        for number, (places, _) in enumerate(members):
            touching = [group for group in groups if group[0] & places]
            merged = (set(places), {(side, number)})
            for group in touching:
                merged[0].update(group[0])
                merged[1].update(group[1])
                groups.remove(group)
            groups.append(merged)
    return groups


def test_both_sums_are_over_the_bytes_that_both_score(folder, run):
    units = [list(model_units()), list(arm_units(folder))]
    totals, num_bytes = [0.0, 0.0], 0
    for places, members in joined(units):
        covered = [set(), set()]
        for side, number in members:
            covered[side] |= units[side][number][0]
        if covered[0] == covered[1] == places:
            ends = {document: len(text.encode()) for document, text in enumerate(DOCUMENTS)}
            num_bytes += sum(place < ends[document] for document, place in places)
            for side, number in members:
                totals[side] += units[side][number][1]
    found = run["per_byte"]
    assert found["bytes"] == num_bytes
    assert 0.6 < num_bytes / sum(len(text.encode()) for text in DOCUMENTS) < 1
    model, arm = (-total / num_bytes / math.log(2) for total in totals)
    assert found["bits_per_byte"]["exact"] == pytest.approx(model, rel=1e-5)
    assert found["arm_bits_per_byte"] == pytest.approx(arm, rel=1e-5)
    assert found["difference"] == pytest.approx(arm - model, rel=1e-4)
    assert found["documents"] == len(DOCUMENTS)


def test_it_is_said_and_is_no_surrogate(run):
    assert run["arm"] is None
    assert run["comparison"] is None
    assert "another tokenizer: it is compared per byte, and is no surrogate" in run["verdict"]
    assert not any(name.endswith("_arm") for name in run["regimes"]["ao_arm"])
    assert run["per_byte"]["arm"] == {"checkpoint": "gpt", "tokenizer": "gpt", "length": ARM_LENGTH}


def test_words_are_those_of_the_text(run):
    words = sum(len(re.split(r"\s+", text)) for text in DOCUMENTS)
    num_bytes = sum(len(text.encode()) for text in DOCUMENTS)
    assert run["counts"]["bytes_per_word"] == pytest.approx(num_bytes / words)
    exact = run["regimes"]["ao_arm"]["exact"]
    nats_a_word = exact["bits_per_byte"] * math.log(2) * num_bytes / words
    assert exact["ppl_per_word"] == pytest.approx(math.exp(nats_a_word), rel=1e-9)


def test_a_second_call_scores_nothing_and_a_report_says_the_same(folder, run, monkeypatch):
    before = (folder / "run/shared_text.parquet").stat().st_mtime_ns
    run_here(monkeypatch, folder, *OPTIONS, "arm.tokenizer=gpt", "output_dir=run", "batch_size=7")
    assert (folder / "run/shared_text.parquet").stat().st_mtime_ns == before
    assert results(folder / "run")["per_byte"] == run["per_byte"]


def test_some_batches_share_some_text(folder, run, monkeypatch):
    few = [*OPTIONS, "arm.tokenizer=gpt", "output_dir=few", "batch_size=2", "num_batches=2"]
    run_here(monkeypatch, folder, *few)
    assert 0 < results(folder / "few")["per_byte"]["bytes"] < run["per_byte"]["bytes"]


def test_without_its_tokenizer_it_is_refused_with_what_to_do(folder, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run_here(monkeypatch, folder, *OPTIONS, "output_dir=refused")
    told = error_line(capsys.readouterr().err)
    assert "got 296: give its tokenizer (arm.tokenizer=), and the two are compared per" in told


def test_a_tokenizer_with_more_tokens_than_the_arm_is_refused(folder, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run_here(monkeypatch, folder, *OPTIONS, "output_dir=refused", "arm.tokenizer=demo")
    told = error_line(capsys.readouterr().err)
    assert "arm.tokenizer: expected at most 296 tokens, the ARM's, got 1024 of demo" in told
