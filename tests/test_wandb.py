"""logger=wandb: real runs offline, read back by W&B's own reader."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from evaluation_runs import QUIET, ROOT, results, run, write_tokens

WANDB = Path(sys.executable).parent / "wandb"
ESTIMATORS = {"exact", "elbo", "elbo_k", "tube", "tube_split", "cubo", "tvo", "isvgb"}
REGIMES = {"nfe_1", "nfe_2", "nfe_4", "ao_arm"}


def environment_without_login(folder, **more):
    """What ~/.netrc and the settings of whoever runs the tests say must not matter."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("WANDB_")}
    names = ("HOME", "NETRC", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")
    return clean | {name: str(folder / name.lower()) for name in names} | QUIET | more


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """Evaluate once, and read the records that `wandb sync` would send."""
    folder = tmp_path_factory.mktemp("wandb")
    options = write_tokens(folder, 24)  # the fewest that have intervals
    environment = environment_without_login(folder, WANDB_MODE="offline")
    options += ["output_dir=run", "batch_size=6", "logger=wandb", "logger.name=tiny"]
    run(folder, *options, environment=environment)
    [path] = (folder / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    records = subprocess.run(
        [str(WANDB), "leet", "inspect", "--json", str(path)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return folder / "run", path.parent, [json.loads(line) for line in records.stdout.splitlines()]


def of_kind(records, kind):
    return [record[kind] for record in records if record["type"] == kind]


def test_every_bound_has_a_curve_against_the_tokens_scored(offline):
    directory, _, records = offline
    points = [entry["item"] for entry in of_kind(records, "history")]
    curves = [point for point in points if "ao_arm/tube_ppl" in point]
    assert [point["tokens_scored"] for point in curves] == [42, 84, 126, 168]
    for regime in REGIMES:
        for name in ESTIMATORS | {"tube_psi_pi", "tube_psi_arm"}:
            values = [point[f"{regime}/{name}_ppl"] for point in curves]
            final = results(directory)["regimes"][regime][name]["ppl"]
            assert values[-1] == pytest.approx(final, rel=1e-9)
            assert values[0] != values[-1]
    assert curves[-1]["arm_ppl"] == pytest.approx(results(directory)["arm"]["ppl"], rel=1e-9)


def test_tokens_scored_is_the_x_axis(offline):
    _, _, records = offline
    everything = [entry for entry in of_kind(records, "metric") if entry.get("glob_name") == "*"]
    assert everything[-1]["step_metric"] == "tokens_scored"  # the last word counts


def test_the_final_table(offline):
    directory, folder, records = offline
    [logged] = [e["item"] for e in of_kind(records, "history") if "results._type" in e["item"]]
    table = json.loads((folder / "files" / logged["results.path"]).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    found = {(row["regime"], row["estimator"]): row for row in rows}
    expected = results(directory)
    named = {(r, n): v for r, names in expected["regimes"].items() for n, v in names.items()}
    assert {(r, n) for r in REGIMES for n in ESTIMATORS} <= named.keys()
    assert found.keys() == named.keys() | {("arm", "exact")}
    for key, value in (named | {("arm", "exact"): expected["arm"]}).items():
        row = found[key]
        assert [row["ci95_low"], row["ci95_high"]] == pytest.approx(value["ci95"])
        assert row["ppl"] == pytest.approx(value["ppl"])
        for name in ("bits_per_byte", "side", "bound_preserving", "wrong_side", "violated"):
            assert row[name] == value[name], (key, name)


def test_the_figures(offline):
    directory, folder, records = offline
    drawn = {path.stem: path.read_bytes() for path in (directory / "figures").glob("*.png")}
    assert "bracket" in drawn
    logged = {}
    for entry in of_kind(records, "history"):
        for key, value in entry["item"].items():
            if key.startswith("figures/") and key.endswith(".filenames"):
                [name] = value
                stem = key.removeprefix("figures/").removesuffix(".filenames")
                logged[stem] = (folder / "files" / name).read_bytes()
    assert logged == drawn


def test_the_config_is_there_before_the_first_score(offline):
    directory, _, records = offline
    kinds = [record["type"] for record in records]
    assert kinds.index("config") < kinds.index("history")
    config = of_kind(records, "config")[0]["update"]
    expected = results(directory)["config"]
    assert config["batch_size"] == 6
    assert config["protocol"] == expected["protocol"]
    assert config["model"] == expected["model"]


def test_the_summary_has_the_final_values(offline):
    directory, _, records = offline
    summary = {}
    for entry in of_kind(records, "summary"):
        summary |= entry["update"]
    expected = results(directory)
    assert summary["verdict"] == expected["verdict"]
    assert summary["tokens"] == expected["counts"]["tokens"]
    assert summary["ao_arm/exact_ppl"] == pytest.approx(
        expected["regimes"]["ao_arm"]["exact"]["ppl"]
    )
    assert summary["arm_ppl"] == pytest.approx(expected["arm"]["ppl"])


def test_the_run_has_the_name_and_project_of_the_options(offline):
    _, _, records = offline
    [record] = of_kind(records, "run")
    assert (record["project"], record["display_name"]) == ("tube_lightning", "tiny")


def test_a_missing_login_is_told_before_anything_else(tmp_path):
    options = ["data=text", "data.path=there_is_no_such_file.npy", "logger=wandb", "output_dir=run"]
    environment = environment_without_login(tmp_path)
    _, err = run(tmp_path, *options, code=1, environment=environment)
    assert "logger: expected a login to Weights & Biases" in err
    for remedy in ("`wandb login`", "WANDB_API_KEY", "WANDB_MODE=offline", "logger=csv"):
        assert remedy in err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_logs_its_curves_and_config(tmp_path):
    options = ["network.hidden_dim=16", "network.n_blocks=1", "network.n_heads=2", "batch_size=4"]
    options += ["trainer.accelerator=cpu", "trainer.max_steps=2", "trainer.log_every_n_steps=1"]
    options += ["trainer.limit_val_batches=1", "logger=wandb", "output_dir=run"]
    environment = environment_without_login(tmp_path, WANDB_MODE="offline")
    command = [sys.executable, str(ROOT / "train.py"), *options]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, env=environment)
    [path] = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    inspect = [str(WANDB), "leet", "inspect", "--json", str(path)]
    read = subprocess.run(inspect, check=True, capture_output=True, text=True, env=environment)
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert of_kind(records, "config")[0]["update"]["batch_size"] == 4
    assert any("train/nats_per_token" in entry["item"] for entry in of_kind(records, "history"))
