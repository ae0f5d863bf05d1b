"""The record of an evaluation: what was scored, and how."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.checks import check_whole_number
from tube_lightning.protocol import Protocol
from tube_lightning.rundir.names import RUN_FILE
from tube_lightning.whole_files import write_text


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
    other_arm: Mapping[str, Any] | None = None
    """an autoregressive model of another tokenizer: checkpoint, tokenizer, length"""
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
