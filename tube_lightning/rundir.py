"""Run directories: every file name, the record of the run, and one configuration each.

A rerun in its directory continues, and never mixes scores of different settings.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.checks import check_whole_number
from tube_lightning.protocol import Protocol

CLAIM_FILE = "config.json"
"""the settings that whoever continues in the directory must bring"""
RUN_FILE = "run.json"
"""what was scored, and how: ``RunRecord``"""
SCORES_FOLDER = "scores"
"""a part for each finished batch: ``ScoreFiles``"""
RESULTS_FILE = "results.json"
MARKDOWN_FILE, LATEX_FILE = "table.md", "table.tex"
FIGURES_FOLDER = "figures"
MODEL_FOLDER = "model"
"""of a training run: the trained network in the published layout"""
KEPT_MODELS_FOLDER = "models"
"""of a training run: networks kept along the way, each in the published layout"""
LAST_STATE_FILE = "last.ckpt"
"""of a training run: the newest state to resume from"""
UNFINISHED = ".unfinished"
"""how the names of half-written files end"""


@dataclass(frozen=True)
class RunRecord:
    """``run.json``: what the scores in a directory are of, and how to report on them."""

    config: Mapping[str, Any]
    """the run's settings, as users gave them"""
    data: Mapping[str, Any]
    """the text: source, tokenizer, token_sha256, ..."""
    model: Mapping[str, Any]
    """the block model: checkpoint and block_size"""
    protocol: Protocol
    """how blocks were scored, its ``num_orderings`` filled in"""
    estimators: EstimatorSettings
    num_batches: int
    versions: Mapping[str, str]
    """of the packages that scored"""
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """the autoregressive models by name: checkpoint"""
    paper_table: str | None = None
    """the table of the paper to compare with"""
    token_budgets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """how many tokens went through a network at once, by the kind of device: more than one number
    where memory ran out. Values then agree to rounding; whoever continues takes the last."""

    def write(self, directory: Path) -> None:
        """Put it into a run's directory."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values |= {"protocol": asdict(self.protocol), "estimators": dict(self.estimators)}
        write_text(directory / RUN_FILE, json.dumps(values, indent=2) + "\n")

    @staticmethod
    def read(directory: Path) -> "RunRecord":
        """Read it back, as the same types."""
        path = directory / RUN_FILE
        if not path.exists():
            raise ValueError(
                f"{directory}: expected the directory of an evaluation, got no {RUN_FILE}"
            )
        try:
            values = json.loads(path.read_text())
            _check_record(values)
            values["protocol"] = Protocol(**values["protocol"])
            values["estimators"] = EstimatorSettings(**values["estimators"])
            return RunRecord(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: expected the record of an evaluation by this version: {error}"
            ) from error


def _check_record(values: object) -> None:
    """Refuse what a report could not read, by name."""
    if not isinstance(values, dict):
        raise ValueError(f"a JSON object, got {type(values).__name__}")
    needed = [f.name for f in fields(RunRecord) if MISSING is f.default is f.default_factory]
    if missing := sorted(name for name in needed if name not in values):
        raise ValueError(f"it lacks {missing}")
    for name in (*needed, "arms", "token_budgets"):
        if name != "num_batches" and not isinstance(values.get(name, {}), dict):
            raise ValueError(f"{name}: expected an object, got {values[name]!r}")
    check_whole_number("num_batches", values["num_batches"], least=1)
    check_whole_number("model.block_size", values["model"].get("block_size"), least=1)
    if not isinstance(source := values["data"].get("source"), str):
        raise ValueError(f"data.source: expected a text, got {source!r}")
    for kind, budgets in values.get("token_budgets", {}).items():
        if not isinstance(budgets, list):
            raise ValueError(f"token_budgets.{kind}: expected a list, got {budgets!r}")
        for tokens in budgets:
            check_whole_number(f"token_budgets.{kind}", tokens, least=1)
    if not isinstance(table := values.get("paper_table"), str | None):
        raise ValueError(f"paper_table: expected a name or null, got {table!r}")


def recorded_budgets(directory: Path) -> dict[str, Sequence[int]]:
    """Read the token budgets that a directory's run had so far: none where no run can be read."""
    try:
        return dict(RunRecord.read(directory).token_budgets)
    except ValueError:
        return {}


def record_budget(directory: Path, kind: str, tokens: int, *, shrunk: bool = False) -> None:
    """Add the token budget of a kind of device to a run's record, unless it is the last there.

    One that has ``shrunk`` is not added after a smaller one, which another rank is down to.
    """
    record = RunRecord.read(directory)
    before = list(record.token_budgets.get(kind, ()))
    if before[-1:] != [tokens] and not (shrunk and before and before[-1] < tokens):
        budgets = {**record.token_budgets, kind: [*before, tokens]}
        replace(record, token_budgets=budgets).write(directory)


def write_text(path: Path, text: str) -> None:
    """Write a text file: whole, or not at all."""
    with finished_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def claim_directory(
    directory: str | Path, config: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> Path:
    """Make ``directory`` the home of one configuration, or refuse with the keys that differ.

    The configuration is written atomically the first time; later runs must bring the same.
    ``settings`` are what users gave, as in the run's record: a refusal tells those that differ.
    """
    directory = Path(directory)
    path = directory / CLAIM_FILE
    if not path.exists():
        write_text(path, json.dumps(config, indent=2) + "\n")
        return directory
    differing = _compare(json.loads(path.read_text()), config)
    if differing:
        record = directory / RUN_FILE
        before = json.loads(record.read_text()).get("config") if record.exists() else None
        told = _compare(before, settings) if before and settings else []
        raise ValueError(
            f"output_dir: {directory} belongs to a run with other settings; choose another "
            "or remove it.\n  " + "\n  ".join(dict.fromkeys(told + differing))
        )
    return directory


def _compare(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the keys that differ, as JSON holds them."""
    theirs, ours = flat_settings(there), flat_settings(json.loads(json.dumps(now)))
    differing = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
    return [f"{k}: there {theirs.get(k)!r}, now {ours.get(k)!r}" for k in differing]


@contextmanager
def finished_file(path: Path) -> Iterator[Path]:
    """Lend a name to write to; when that ends well, the file stands under ``path``, whole.

    Many processes may do so at once: names are their own, and the last of them wins. A process that
    is killed leaves its name behind, and ``path`` as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=UNFINISHED, dir=path.parent)
        os.close(handle)
        unfinished = Path(name)
        try:
            yield unfinished
            _make_durable(unfinished)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make_durable(path: Path) -> None:
    """Give the usual permissions to a file that mkstemp made private, and wait for the disk."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flat_settings(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name every leaf of nested settings by its path.

    >>> flat_settings({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
