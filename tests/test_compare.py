"""Runs side by side: values and paired differences against plain loops, refusals, and files."""

import io
import json
import math
from dataclasses import replace

import numpy
import pytest
import scipy.stats
import torch
from oracles import mean, probabilities
from report_runs import BLOCKS, Run, strict
from rich.console import Console

from tube_lightning.compare import compare_runs, write_comparison
from tube_lightning.compare.__main__ import main
from tube_lightning.compare.rates import list_entrants, measure_difference
from tube_lightning.compare.runs import open_runs
from tube_lightning.compare.sums import sum_run
from tube_lightning.compare.tables import show
from tube_lightning.metrics import TextSums, difference_of_rates, rate_errors
from tube_lightning.scores import ScoreFiles

TEXT = {"source": "tiny_text", "tokenizer": "byte", "token_sha256": "a" * 64, "length": 9}
SAME_TEXT = {"text_sha256": "f" * 64}


def write(run, folder, data=None, **changes):
    folder.mkdir()
    return str(run.write(folder, data={**TEXT, **(data or {})}, **changes))


def difference(run, ours, theirs):
    """Return the mean paired difference of block values, its error and one-sided p, by loops."""
    paired = [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(ours, theirs, strict=True)]
    rate, error = run.corpus(paired)
    return rate, error, scipy.stats.t.sf(rate / error, run.degrees)


def log_mean(block):
    return float(mean(probabilities(block)).ln())


def test_two_runs_on_the_same_tokens(tmp_path):
    one, two = Run(12, seed=1), Run(12, seed=2)
    names = [write(one, tmp_path / "one"), write(two, tmp_path / "two")]
    found = compare_runs(names)
    first, second, *arms = found["entries"]
    assert (found["unit"], found["paired_by"], found["sequences"]) == (
        "nats_per_token",
        "sequences",
        12,
    )
    assert first["against_first"] is None
    assert first["lower"] == first["upper"]
    for run, entry in ((one, first), (two, second)):
        rate, error = run.corpus(run.exact["ao_arm"])
        assert entry["lower"]["nats_per_token"] == pytest.approx(rate, rel=1e-12)
        assert entry["lower"]["ppl"] == pytest.approx(math.exp(-rate), rel=1e-12)
        ends = [math.exp(-rate - run.t95 * error), math.exp(-rate + run.t95 * error)]
        assert entry["lower"]["ppl_ci95"] == pytest.approx(sorted(ends), rel=1e-9)
        total = math.fsum(
            v for row in run.document_sums(run.exact["ao_arm"]).values() for v in row[:1]
        )
        bits = -total / sum(map(sum, run.bytes)) / math.log(2)
        assert entry["lower"]["bits_per_byte"] == pytest.approx(bits, rel=1e-12)
    rate, error, p_better = difference(one, two.exact["ao_arm"], one.exact["ao_arm"])
    against = second["against_first"]
    assert against["at_least"]["value"] == pytest.approx(rate, rel=1e-9)
    assert against["at_least"]["standard_error"] == pytest.approx(error, rel=1e-9)
    assert against["at_least"]["error_method"] == "documents"
    assert against["p_better"] == pytest.approx(p_better, rel=1e-6)
    assert against["p_worse"] == pytest.approx(1 - p_better, rel=1e-6)
    assert [arm["label"] for arm in arms] == ["ARM of one", "ARM of two"]
    rate, error, _ = difference(one, two.arm, one.exact["ao_arm"])
    assert arms[1]["against_first"]["at_most"]["value"] == pytest.approx(rate, rel=1e-9)


def test_an_arm_that_is_the_same_is_shown_once(tmp_path):
    one, two = Run(12, seed=1), Run(12, seed=2)
    two.arm = [[value * (1 + 1e-8) for value in row] for row in one.arm]
    found = compare_runs([write(one, tmp_path / "one"), write(two, tmp_path / "two")])
    assert [entry["label"] for entry in found["entries"]] == ["one", "two", "ARM"]
    assert len(found["entries"][-1]["directories"]) == 2


@pytest.mark.parametrize(
    ("shift", "word"), [(0.5, "better"), (-0.5, "worse"), (0.0, "not distinguishable")]
)
def test_the_word(tmp_path, shift, word):
    one, two = Run(12, seed=1), Run(12, seed=2)
    noise = torch.randn(12, BLOCKS, generator=torch.Generator().manual_seed(0)).mul(0.1)
    noise = noise - noise.mean()
    two.exact["ao_arm"] = (torch.tensor(one.exact["ao_arm"]) + shift + noise).tolist()
    found = compare_runs([write(one, tmp_path / "one"), write(two, tmp_path / "two")])
    assert found["entries"][1]["against_first"]["word"] == word


@pytest.mark.parametrize(
    ("shift", "word"), [(9.0, "better"), (-9.0, "worse"), (0.0, "not distinguishable")]
)
def test_brackets_are_judged_by_the_ends_that_must_be_apart(tmp_path, shift, word):
    one, two = Run(12, seed=1), Run(12, seed=2)
    two.scores["ao_arm"] = [
        [[value + shift for value in block] for block in row] for row in two.scores["ao_arm"]
    ]
    names = [write(r, tmp_path / n, exact=False) for r, n in ((one, "one"), (two, "two"))]
    found = compare_runs(names)
    first, second = found["entries"][:2]
    assert [first[end]["name"] for end in ("lower", "upper")] == ["elbo_k", "tube"]
    rate, _ = one.corpus(one.blockwise("ao_arm", log_mean))
    assert first["lower"]["nats_per_token"] == pytest.approx(rate, rel=1e-9)
    against = second["against_first"]
    assert against["at_least"]["by"] == ["elbo_k", "tube"]
    ends = second["lower"]["nats_per_token"] - first["upper"]["nats_per_token"]
    assert against["at_least"]["value"] == pytest.approx(ends, rel=1e-9)
    assert against["at_least"]["value"] < against["at_most"]["value"]
    assert against["word"] == word
    assert any("in expectation" in note for note in found["notes"])


def test_only_common_sequences_count(tmp_path):
    one, two = Run(20, seed=1), Run(20, seed=2)
    names = [write(one, tmp_path / "one"), write(two, tmp_path / "two", num_batches=6)]
    found = compare_runs(names)
    assert found["sequences"] == 12
    for run, entry in zip((one, two), found["entries"], strict=False):
        rows = [math.fsum(row) for row in run.exact["ao_arm"][:12]]
        assert entry["tokens"] == 12 * 8
        assert entry["lower"]["nats_per_token"] == pytest.approx(math.fsum(rows) / 96, rel=1e-12)
    assert any(
        "12 sequences that all runs have, of 20 (one), 12 (two)" in n for n in found["notes"]
    )


def test_two_regimes_of_one_run(tmp_path):
    run = Run(12)
    name = write(run, tmp_path / "run")
    found = compare_runs([name, f"{name}:nfe_2"])
    labels = [entry["label"] for entry in found["entries"]]
    assert labels == ["run, AO-ARM", "run, NFE = 2", "ARM"]
    rate, _, _ = difference(run, run.exact["nfe_2"], run.exact["ao_arm"])
    value = found["entries"][1]["against_first"]["at_least"]["value"]
    assert value == pytest.approx(rate, rel=1e-9)


def test_other_tokens_of_the_same_text_are_compared_per_byte(tmp_path):
    """Two sequences a document in one run, one in the other, and other bytes in each."""
    one, two = Run(24, seed=1, documents=2), Run(12, seed=2)
    names = [
        write(one, tmp_path / "one", SAME_TEXT),
        write(
            two,
            tmp_path / "two",
            {**SAME_TEXT, "token_sha256": "b" * 64, "num_sequences": 40},
        ),
    ]
    found = compare_runs(names)
    assert (found["unit"], found["paired_by"], found["documents"]) == (
        "bits_per_byte",
        "documents",
        12,
    )
    pieces = []
    for run, entry in zip((one, two), found["entries"], strict=False):
        sizes = dict.fromkeys(run.documents, 0)
        for document, row in zip(run.documents, run.bytes, strict=True):
            sizes[document] += sum(row)
        nats = [nats for nats, _ in run.document_sums(run.exact["ao_arm"]).values()]
        pieces.append((numpy.array(nats), numpy.array([*sizes.values()])))
        bits = -math.fsum(nats) / sum(sizes.values()) / math.log(2)
        assert entry["lower"]["bits_per_byte"] == pytest.approx(bits, rel=1e-12)
        assert entry["lower"]["ppl"] is None
        assert entry["bytes"] == sum(sizes.values())
    (a, sizes_a), (b, sizes_b) = pieces
    left_out = [_rates(a, sizes_a, b, sizes_b, numpy.arange(12) != g) for g in range(12)]
    jackknife = numpy.sqrt(11 / 12 * ((left_out - numpy.mean(left_out)) ** 2).sum()) / math.log(2)
    against = found["entries"][1]["against_first"]["at_least"]
    whole = _rates(b, sizes_b, a, sizes_a, numpy.full(12, True)) / math.log(2)
    assert against["value"] == pytest.approx(whole, rel=1e-9)
    assert against["standard_error"] == pytest.approx(jackknife, rel=0.05)
    assert any("divided by its own bytes" in note for note in found["notes"])
    assert any("Scored were 12 of 40 sequences (two)" in note for note in found["notes"])
    assert any("scored by only one of two runs" in note for note in found["notes"])
    told = found["entries"][1]["against_first"]  # parts of a text are not the same text
    assert (told["word"], told["p_better"] is None) == ("not judged", False)
    assert "not all of the text was scored" in told["reason"]
    whole_text = {**SAME_TEXT, "token_sha256": "b" * 64, "num_sequences": 12}
    names[1] = write(two, tmp_path / "all_of_two", whole_text)
    assert compare_runs(names)["entries"][1]["against_first"]["word"] != "not judged"


def _rates(a, sizes_a, b, sizes_b, kept):
    return a[kept].sum() / sizes_a[kept].sum() - b[kept].sum() / sizes_b[kept].sum()


def test_linearised_differences_keep_their_level_and_agree_with_the_jackknife():
    """Documents of log-normal sizes, denominators that differ by 20%, 4,000 texts of no gain."""
    rng = numpy.random.default_rng(5)
    sizes_a = numpy.round(rng.lognormal(6, 0.6, 40)) + 20
    sizes_b = numpy.round(sizes_a * rng.uniform(0.8, 1.2, 40)) + 1
    shape = (4000, 40)
    common = rng.normal(-2, 0.3, shape)
    a = common * sizes_a + rng.normal(0, 1, shape) * numpy.sqrt(sizes_a)
    b = common * sizes_b + rng.normal(0, 1, shape) * numpy.sqrt(sizes_b)
    ours, theirs = (
        TextSums(torch.from_numpy(nats), torch.from_numpy(sizes))
        for nats, sizes in ((a, sizes_a), (b, sizes_b))
    )
    paired = difference_of_rates(ours, theirs)
    rates = (paired.nats.sum(dim=1) / paired.tokens.sum()).numpy()
    whole = numpy.full(40, True)
    assert rates[:9] == pytest.approx(
        [_rates(a[i], sizes_a, b[i], sizes_b, whole) for i in range(9)]
    )
    errors = rate_errors(paired, paired)
    missed = numpy.mean([abs(r) > e.margin for r, e in zip(rates, errors, strict=True)])
    assert 0.035 < missed < 0.06
    for i in range(9):
        left_out = [_rates(a[i], sizes_a, b[i], sizes_b, numpy.arange(40) != g) for g in range(40)]
        jackknife = numpy.sqrt(39 / 40 * ((left_out - numpy.mean(left_out)) ** 2).sum())
        assert errors[i].standard_error == pytest.approx(jackknife, rel=0.06)


def test_equal_denominators_give_the_paired_differences_themselves():
    nats = torch.randn(2, 1, 7, dtype=torch.float64)
    tokens = torch.arange(1, 8)
    paired = difference_of_rates(TextSums(nats[0], tokens), TextSums(nats[1], tokens))
    torch.testing.assert_close(paired.nats, nats[0] - nats[1])
    torch.testing.assert_close(paired.tokens, tokens.double())


@pytest.mark.parametrize("exact", [True, False])
def test_one_bank_is_never_called_better_without_exact_values(tmp_path, exact):
    one, two = Run(12, seed=1, bank=True), Run(12, seed=2, bank=True)
    for name in ("scores", "exact"):
        values = torch.tensor(getattr(two, name)["ao_arm"]) + 9
        getattr(two, name)["ao_arm"] = values.tolist()
    names = [write(r, tmp_path / n, exact=exact) for r, n in ((one, "one"), (two, "two"))]
    found = compare_runs(names)
    against = found["entries"][1]["against_first"]
    assert against["word"] == ("better" if exact else "not judged")
    assert any("One bank" in note for note in found["notes"]) != exact
    if not exact:
        assert found["entries"][1]["upper"] is None  # TUBE of a bank bounds its mean
        assert "lucky" in against["reason"]


def test_too_few_documents_are_not_judged(tmp_path):
    names = [write(Run(2, seed=s), tmp_path / str(s)) for s in (1, 2)]
    against = compare_runs(names)["entries"][1]["against_first"]
    assert (against["word"], against["at_least"]["ci95"]) == ("not judged", None)


def test_other_text_is_refused_with_what_differs(tmp_path, capsys):
    run = Run(6)
    one = write(run, tmp_path / "one", SAME_TEXT)
    other = {"token_sha256": "b" * 64, "text_sha256": "e" * 64, "source": "novel", "length": 12}
    two = write(run, tmp_path / "two", other)
    assert main([one, two, "--output", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    for text in (
        "token_sha256 aaaaaaaaaaaa and bbbb",
        "text_sha256 ffff",
        "novel",
        "length 9 and 12",
    ):
        assert text in told
    assert not (tmp_path / "out").exists()


def test_unknown_text_is_not_the_same_text(tmp_path):
    run = Run(6)
    unknown = {"text_sha256": None, "token_sha256": "b" * 64}
    names = [
        write(run, tmp_path / "one", {"text_sha256": None}),
        write(run, tmp_path / "two", unknown),
    ]
    with pytest.raises(ValueError, match="text_sha256 is not known of both"):
        compare_runs(names)


def test_refusals(tmp_path):
    run, later = Run(6), Run(6)
    later.ids = [number + 100 for number in later.ids]
    one = write(run, tmp_path / "one", SAME_TEXT)
    with pytest.raises(ValueError, match="two runs or more, got 1"):
        compare_runs([one])
    with pytest.raises(ValueError, match="got one of them twice"):
        compare_runs([one, one])
    with pytest.raises(ValueError, match="common sequences"):
        compare_runs([one, write(later, tmp_path / "later")])
    with pytest.raises(ValueError, match="expected a regime of ao_arm, nfe_1, nfe_2, got 'nfe_4'"):
        compare_runs([one, f"{one}:nfe_4"])
    with pytest.raises(ValueError, match=r"got no run\.json"):
        compare_runs([one, str(tmp_path)])
    other = {**SAME_TEXT, "token_sha256": "b" * 64}
    with pytest.raises(ValueError, match="expected documents of every token"):
        compare_runs([one, write(Run(6, documents=0), tmp_path / "nodoc", other)])
    unknown = tmp_path / "nobytes"
    nobytes = write(run, unknown, other)
    files = ScoreFiles(unknown / "scores")
    for batch in files.finished():
        files.write(batch, replace(files.read(batch), num_bytes=None))
    with pytest.raises(ValueError, match="expected bytes of every token"):
        compare_runs([one, nobytes])


@pytest.mark.parametrize("exact", [True, False])
def test_the_command_writes_its_files(tmp_path, capsys, exact):
    names = [write(Run(12, seed=s), tmp_path / f"run_{s}", exact=exact) for s in (1, 2)]
    out = tmp_path / "out"
    assert main([*names, "--regime", "nfe_2", "--output", str(out)]) == 0
    shown = capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {
        f"comparison.{suffix}" for suffix in ("md", "tex", "json", "png", "svg")
    }
    results = strict((out / "comparison.json").read_text())
    assert [entry["regime"] for entry in results["entries"]] == ["nfe_2", "nfe_2", None, None]
    table, tex = ((out / f"comparison.{suffix}").read_text() for suffix in ("md", "tex"))
    for text in (shown, table, tex):
        assert "gain, nats per token" in text
        assert results["entries"][1]["against_first"]["word"] in text
    assert r"run\_1" in table
    assert r"\toprule" in tex
    assert "--regime nfe_2" in tex
    assert ("≤" in table) == (not exact)


def test_infinite_values_stay_out_of_json(tmp_path):
    one, two = Run(12, seed=1), Run(12, seed=2)
    two.exact["ao_arm"][3][1] = -math.inf
    names = [write(one, tmp_path / "one"), write(two, tmp_path / "two")]
    found = write_comparison(names, tmp_path / "out", on_screen=False)
    assert found["entries"][1]["against_first"]["word"] == "worse"
    assert strict((tmp_path / "out" / "comparison.json").read_text()) == json.loads(
        json.dumps(found)
    )


def test_several_banks_put_their_spread_into_the_error(tmp_path):
    runs = [Run(12, seed=s, bank=True) for s in (1, 2)]
    names = []
    for number, run in enumerate(runs):
        protocol = {**run.record(6)["protocol"], "num_banks": 2, "num_orderings": 4}
        names.append(write(run, tmp_path / str(number), exact=False, protocol=protocol))
    found = compare_runs(names)
    assert found["entries"][1]["upper"] is None  # TUBE of banks bounds their mean
    entry, rates = found["entries"][1], []
    for bank in (slice(0, 4), slice(4, 8)):
        values = runs[1].blockwise("ao_arm", lambda b, s=bank: log_mean(b[s]))
        rates.append(runs[1].corpus(values)[0])
    assert entry["lower"]["nats_per_token"] == pytest.approx(sum(rates) / 2, rel=1e-9)
    opened = open_runs(names)
    first, _, arm, *_ = list_entrants(opened, [sum_run(run) for run in opened])
    ends = (arm, arm.upper), (first, first.lower)
    plain = [(replace(e, sums=replace(e.sums, of_banks={})), name) for e, name in ends]
    text = measure_difference(*plain, per_byte=False).standard_error
    against = found["entries"][2]["against_first"]
    assert against["word"] != "not judged"
    error, spread = against["at_most"]["standard_error"], bank_variance(first.sums, first.lower) / 2
    assert spread > 0
    assert error == pytest.approx(math.sqrt(text**2 + spread), rel=1e-9)


def bank_variance(sums, name):
    rows = [sums.names.index(bank) for bank in sums.of_banks[name]]
    tokens = sums.sequences.sums.tokens.sum()
    return float((sums.sequences.sums.nats[rows].sum(dim=1) / tokens).var())


def test_help_helps(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "DIR[:REGIME]" in told
    assert "paired" in told


def test_a_narrow_screen_has_models_and_intervals_on_lines_of_their_own(tmp_path):
    found = compare_runs([write(Run(12, seed=s), tmp_path / f"run_{s}") for s in (1, 2)])
    console = Console(file=io.StringIO(), force_terminal=True, width=110, color_system=None)
    show(found, console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 110
    (row,) = [number for number, line in enumerate(lines) if line.startswith("run_2")]
    assert lines[row + 1].startswith("tiny, blocks of 3")
    assert "[" in lines[row + 1]
