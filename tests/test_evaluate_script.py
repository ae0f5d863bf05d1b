"""evaluate.py as users run it: the screen, the numbers for any number of processes, errors."""

import csv
import math
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluation_runs import (
    FIXTURES,
    ROOT,
    error_line,
    parts,
    results,
    run,
    run_here,
    values,
    without_bar,
    write_tokens,
)

NUM_SEQUENCES, BATCH_SIZE, NUM_BATCHES = 7, 2, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluate")


@pytest.fixture(scope="module")
def options(folder):
    return [*write_tokens(folder, NUM_SEQUENCES), f"batch_size={BATCH_SIZE}"]


@pytest.fixture(scope="module")
def whole(folder, options):
    """Evaluate on one process: the directory, and what was on the screen."""
    return folder / "whole", *run(folder, *options, "output_dir=whole")


def finite(node):
    """Yield the numbers of nested results with their path."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in children:
        if isinstance(value, dict | list):
            yield from (((key, *path), number) for path, number in finite(value))
        elif isinstance(value, float):
            yield (key,), value


def last_point(directory):
    """The last point of the live curves."""
    with (directory / "logs" / "version_0" / "metrics.csv").open() as file:
        *_, last = csv.DictReader(file)
    return {name: float(value) for name, value in last.items()}


def assert_each_sequence_once(directory):
    columns = ["sequence", "block"]
    tables = [pq.read_table(path, columns=columns) for path in (directory / "scores").iterdir()]
    rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    assert sorted(rows) == [(s, b) for s in range(NUM_SEQUENCES) for b in range(2)]


def test_the_screen_shows_the_results_and_nothing_else(whole):
    directory, out, err = whole
    for text in ("AO-ARM", "NFE = 4", "TUBE", "ELBO_K", "ARM|", "Results are in whole"):
        assert text in out
    assert results(directory)["verdict"] in " ".join(out.split())
    assert without_bar(err) == []
    assert f"{NUM_BATCHES}/{NUM_BATCHES}" in err


def test_everything_is_in_the_directory(whole):
    directory, _, _ = whole
    names = {path.name for path in directory.iterdir()}
    files = {"config.json", "run.json", "results.json", "table.md", "table.tex"}
    assert names == files | {"scores", "figures", "logs"}
    assert len(parts(directory)) == NUM_BATCHES
    assert_each_sequence_once(directory)
    with (directory / "logs" / "version_0" / "metrics.csv").open() as file:
        tokens = [float(row["tokens_scored"]) for row in csv.DictReader(file)]
    assert tokens == [14, 28, 42, 49]


@pytest.mark.parametrize(
    "devices",
    [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)],
)
def test_more_processes_give_the_same_numbers(folder, options, whole, devices):
    name = f"devices_{devices}"
    out, err = run(folder, *options, f"output_dir={name}", f"trainer.devices={devices}")
    assert values(folder / name) == values(whole[0])
    assert_each_sequence_once(folder / name)
    assert out.count("AO-ARM") == whole[1].count("AO-ARM")
    assert without_bar(err) == []
    assert err.count("scoring ") == whole[2].count("scoring ")


@pytest.mark.slow
def test_spawned_processes_give_the_same_numbers(folder, options, whole):
    """Everything goes to them by pickles: module, metrics, plan, callbacks."""
    spawned = ["output_dir=spawned", "trainer.strategy=ddp_spawn", "trainer.devices=2"]
    _, err = run(folder, *options, *spawned)
    assert values(folder / "spawned") == values(whole[0])
    assert_each_sequence_once(folder / "spawned")
    ours, theirs = (last_point(directory) for directory in (folder / "spawned", whole[0]))
    assert ours == pytest.approx(theirs, rel=1e-12)
    assert "Traceback" not in err


@pytest.mark.slow
def test_fewer_batches_than_processes(folder, options, whole):
    few = [*options, "num_batches=2"]
    run(folder, *few, "output_dir=few_1")
    run(folder, *few, "output_dir=few_3", "trainer.devices=3")
    assert len(parts(folder / "few_3")) == 2
    assert values(folder / "few_3") == values(folder / "few_1") != values(whole[0])


def test_more_batches_only_add(monkeypatch, folder, options, whole):
    """A run of some batches, spread over the text, goes on to all of it in its directory."""
    first = results_of_batches(monkeypatch, folder, options, 2)
    times = parts(folder / "growing")
    assert len(times) == 2
    assert first["counts"]["sequences"] == 2 * BATCH_SIZE
    results_of_batches(monkeypatch, folder, options, "null")
    later = parts(folder / "growing")
    assert len(later) == len(parts(whole[0]))
    assert {name: later[name] for name in times} == times  # not scored again
    assert values(folder / "growing") == values(whole[0])
    again = results_of_batches(monkeypatch, folder, options, 2)
    for key in ("regimes", "arm", "counts"):
        assert dict(finite(again[key])) == dict(finite(first[key]))


def results_of_batches(monkeypatch, folder, options, number):
    run_here(monkeypatch, folder, *options, "output_dir=growing", f"num_batches={number}")
    return results(folder / "growing")


def test_a_text_may_be_read_further_from_its_beginning(monkeypatch, folder, options, capsys):
    """What is scored stays; another text is refused, also one that only begins otherwise."""
    contiguous = [*options, "output_dir=further", "data.order=contiguous"]
    run_here(monkeypatch, folder, *contiguous, "num_batches=1")
    one, values_of_one = parts(folder / "further"), values(folder / "further")
    run_here(monkeypatch, folder, *contiguous, "num_batches=2", "estimators.cubo_beta=3")
    two = parts(folder / "further")
    assert len(two) == 2
    assert two.items() >= one.items()
    assert results(folder / "further")["estimators"]["cubo_beta"] == 3
    run_here(monkeypatch, folder, *contiguous, "num_batches=1")
    assert values(folder / "further")["regimes"] == values_of_one["regimes"]
    tokens = np.load(folder / "tokens.npy")
    np.save(folder / "others.npy", np.roll(tokens, 1, axis=1))
    other = [o for o in contiguous if not o.startswith("data.path")]
    err = error_of(monkeypatch, capsys, folder, *other, "data.path=others.npy", "num_batches=3")
    assert "belongs to a run with another text" in error_line(err)


def test_a_directory_is_named_by_model_text_and_protocol(monkeypatch, tmp_path):
    options = [*write_tokens(tmp_path, 2), "batch_size=2"]
    run_here(monkeypatch, tmp_path, *options)
    block8 = f"model.checkpoint={FIXTURES / 'bd3lm_block8'}"
    run_here(monkeypatch, tmp_path, *options[1:], block8, "arm.checkpoint=none")
    found = sorted(path.name for path in (tmp_path / "outputs/evaluate").iterdir())
    assert found == ["bd3lm_block4_tokens_default", "bd3lm_block8_tokens_default"]
    assert results(tmp_path / "outputs/evaluate" / found[1])["arm"] is None


@pytest.mark.parametrize("batch_size", [1, pytest.param(3, marks=pytest.mark.slow), 8])
def test_other_batch_sizes_agree(monkeypatch, folder, options, whole, batch_size):
    name = f"batch_{batch_size}"
    run_here(monkeypatch, folder, *options, f"batch_size={batch_size}", f"output_dir={name}")
    assert len(parts(folder / name)) == math.ceil(NUM_SEQUENCES / batch_size)
    for key in ("regimes", "arm"):
        ours, theirs = (dict(finite(results(d)[key])) for d in (folder / name, whole[0]))
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_a_finished_run_is_only_reported_again(monkeypatch, folder, options, whole, capsys):
    """Neither the number of devices nor the logger belongs to the scores."""
    before, expected = parts(whole[0]), values(whole[0])
    monkeypatch.setenv("WANDB_MODE", "disabled")
    again = [*options, "output_dir=whole", "trainer.devices=2", "logger=wandb"]
    run_here(monkeypatch, folder, *again)
    assert parts(whole[0]) == before
    assert values(whole[0]) == expected
    assert "AO-ARM" in capsys.readouterr().out


def test_settings_of_the_report_alone_are_reported_anew(monkeypatch, folder, options, whole):
    """CUBO's exponent changes no score: the finished run gets another report, and nothing else."""
    shutil.copytree(whole[0], folder / "again")
    before = parts(folder / "again")
    again = [*options, "output_dir=again", "estimators.cubo_beta=3", "paper_table=owt"]
    run_here(monkeypatch, folder, *again)
    assert parts(folder / "again") == before
    first, second = results(whole[0]), results(folder / "again")
    assert second["estimators"] == {**first["estimators"], "cubo_beta": 3.0}
    assert second["config"]["estimators"]["cubo_beta"] == 3
    assert (first["paper"], second["paper"]["table"]) == (None, "owt")
    for regime, estimates in first["regimes"].items():
        cubo = second["regimes"][regime].pop("cubo")
        random = regime != "nfe_1"
        assert (cubo["ppl"] < estimates.pop("cubo")["ppl"] - 1e-6) == random
        assert second["regimes"][regime] == estimates


def test_what_files_are_called_does_not_matter(monkeypatch, folder, options, whole):
    """The same weights and tokens elsewhere, and a default that is spelled out."""
    shutil.copytree(whole[0], folder / "moved")
    shutil.copytree(FIXTURES / "bd3lm_block4", folder / "model_elsewhere")
    shutil.copy(folder / "tokens.npy", folder / "tokens_elsewhere.npy")
    before = parts(folder / "moved")
    moved = ["model.checkpoint=model_elsewhere", "data.path=tokens_elsewhere.npy"]
    spelled = ["protocol.num_orderings=24", "protocol.nfe=[1,2,4]", "protocol.name=mine"]
    run_here(monkeypatch, folder, *options, *moved, *spelled, "output_dir=moved")
    assert parts(folder / "moved") == before
    for key in ("regimes", "arm", "verdict"):
        assert results(folder / "moved")[key] == results(whole[0])[key]


def test_a_bank_may_be_resampled_more_often(monkeypatch, folder, options):
    again = [*options, "output_dir=bank", "protocol=paper", "protocol.elbo_seeds=2"]
    run_here(monkeypatch, folder, *again, "protocol.num_reseeds=2")
    before, few = parts(folder / "bank"), results(folder / "bank")["regimes"]["nfe_2"]["tvo"]
    run_here(monkeypatch, folder, *again, "protocol.num_reseeds=3")
    many = results(folder / "bank")["regimes"]["nfe_2"]["tvo"]
    assert parts(folder / "bank") == before
    assert few["std"] > 0 < many["std"]
    assert few["ppl"] != many["ppl"]


def error_of(monkeypatch, capsys, folder, *options):
    """Return what Hydra prints when evaluate.py fails."""
    with pytest.raises(SystemExit) as stop:
        run_here(monkeypatch, folder, *options)
    assert stop.value.code == 1
    return capsys.readouterr().err


def test_another_configuration_is_refused_by_key(monkeypatch, capsys, folder, options, whole):
    before = parts(whole[0])
    changed = [*options, "output_dir=whole", "seed=7", "batch_size=3"]
    err = error_of(monkeypatch, capsys, folder, *changed)
    assert error_line(err).startswith(
        "error: output_dir: whole belongs to a run with another batch_size and another protocol"
    )
    for line in ("protocol.seed: there 0, now 7", "batch_size: there 2, now 3"):
        assert line in err
    assert parts(whole[0]) == before


def test_another_text_is_refused(monkeypatch, capsys, tmp_path, folder, whole):
    """Also under the same name: the tokens' hash belongs to the run."""
    other = [*write_tokens(tmp_path, NUM_SEQUENCES + 1), f"batch_size={BATCH_SIZE}"]
    mine = folder / "tokens.npy"
    kept = mine.read_bytes()
    try:
        shutil.copy(tmp_path / "tokens.npy", mine)
        swapped = [f"data.path={mine}" if o.startswith("data.path=") else o for o in other]
        err = error_of(monkeypatch, capsys, folder, *swapped, "output_dir=whole")
    finally:
        mine.write_bytes(kept)
    assert "output_dir: whole belongs to a run with another text" in error_line(err)


def test_a_directory_that_cannot_be_is_named(monkeypatch, capsys, folder, options):
    (folder / "file").write_text("")
    err = error_of(monkeypatch, capsys, folder, *options, "output_dir=file/run")
    assert error_line(err).endswith("file/run/config.json: cannot be written: Not a directory")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.path=missing.npy", "missing.npy"),
        ("data.path=large.npy", "41"),
        ("length=9", "expected sequences of 9 tokens, got 8"),
        ("length=1", "length: expected a whole number of at least 2, got 1"),
        ("length=25", "length: expected at most 24, the model's, got 25"),
        ("num_batches=0", "num_batches: expected a whole number of at least 1, got 0"),
        ("batch_size=0", "batch_size: expected a whole number of at least 1, got 0"),
        ("protocol.nfe=[0]", "nfe: expected a whole number of at least 1, got 0"),
        ("estimators.isvgb_pairs=0", "isvgb_pairs: expected a whole number of at least 1, got 0"),
        ("estimators.cubo_beta=0.5", "cubo_beta: expected a number of at least 1, got 0.5"),
        ("paper_table=foo", "paper_table: expected one of owt, lm1b, got 'foo'"),
        ("model.dtype=int64", "dtype: expected float32, bfloat16, float16, got 'int64'"),
    ],
)
def test_what_is_wrong_is_told_before_weights_are_read(
    monkeypatch, capsys, tmp_path, change, message
):
    options = write_tokens(tmp_path, 3)
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(FIXTURES / "bd3lm_block4" / "config.json", model)  # and no weights
    np.save(tmp_path / "large.npy", np.full((3, 8), 41))
    options += [f"model.checkpoint={model}", change, "output_dir=run"]
    err = error_of(monkeypatch, capsys, tmp_path, *options)
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert "safetensors" not in err
    assert not (tmp_path / "run").exists()


def test_values_of_another_type_are_named(tmp_path):
    """In a process of its own, where no annotation is checked."""
    _, err = run(tmp_path, *write_tokens(tmp_path, 2), "protocol.nfe=3", code=1)
    assert "nfe: expected a list of numbers of steps, got 3" in err


def test_a_training_checkpoint_tells_its_sizes(monkeypatch, tmp_path):
    options = [*write_tokens(tmp_path, 2), "batch_size=2"]
    for name in ("bd3lm_block4", "bd3lm_block4/last.ckpt"):
        run_here(
            monkeypatch, tmp_path, *options, f"model.checkpoint={FIXTURES / name}",
            f"output_dir={name.rpartition('.')[2]}",
        )  # fmt: skip
    ours, theirs = (
        results(tmp_path / name)["regimes"]["ao_arm"]["exact"]["nats_per_token"]
        for name in ("ckpt", "bd3lm_block4")
    )
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_help_lists_groups_and_options():
    command = [sys.executable, str(ROOT / "evaluate.py"), "--help"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for group in ("data: ag_news", "protocol: default, paper", "logger: csv, wandb"):
        assert group in out
    options = [
        "model.checkpoint",
        "model.plugin",
        "arm.checkpoint",
        "output_dir",
        "trainer.devices",
        "batch_size",
    ]
    for option in [*options, "protocol.num_orderings", "protocol.nfe", "logger", "seed"]:
        assert f"  {option}=" in out
