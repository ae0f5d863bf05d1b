"""The record of an evaluation: what was scored, and how."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
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
    paper_table: str | None = None
    """the table of the paper to compare with"""

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
    for name in (*needed, "arms"):
        if name != "num_batches" and not isinstance(values.get(name, {}), dict):
            raise ValueError(f"{name}: expected an object, got {values[name]!r}")
    check_whole_number("num_batches", values["num_batches"], least=1)
    check_whole_number("model.block_size", values["model"].get("block_size"), least=1)
    if not isinstance(source := values["data"].get("source"), str):
        raise ValueError(f"data.source: expected a text, got {source!r}")
    if not isinstance(table := values.get("paper_table"), str | None):
        raise ValueError(f"paper_table: expected a name or null, got {table!r}")
