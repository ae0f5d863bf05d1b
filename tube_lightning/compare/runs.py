"""Which runs are compared, in which regime, and whether their text is the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tube_lightning.measure import RunParts
from tube_lightning.regimes import Regime, headline
from tube_lightning.rundir import RunRecord

Pairing = Literal["sequences", "documents"]
"""The same tokens, paired by sequence; or the same text in other tokens, paired by document."""
_SHOWN = 12
"""Letters of a hash that are told."""


@dataclass(frozen=True)
class ComparedRun:
    """A finished run, one regime of it, and how it is named in tables."""

    label: str
    directory: Path
    regime: str
    record: RunRecord
    parts: RunParts

    @property
    def is_whole(self) -> bool:
        """Tell whether all sequences of its text were scored."""
        whole = self.record.data.get("num_sequences")
        return not isinstance(whole, int) or len(self.parts.sequences()) >= whole


def open_runs(names: Sequence[str], regime: str | None = None) -> list[ComparedRun]:
    """Open runs by DIR or DIR:REGIME; ``regime`` stands where a name has none."""
    if len(names) < 2:
        raise ValueError(f"directories: expected two runs or more, got {len(names)}")
    runs = []
    for given in names:
        directory, chosen = _split(given)
        record = RunRecord.read(directory)
        parts = RunParts(directory, record.num_batches)
        there = [r.name for r in record.protocol.regimes(record.model["block_size"])]
        scored = next(iter(parts)).regimes
        wanted = chosen or regime or headline([name for name in there if name in scored] or scored)
        if wanted not in scored:
            raise ValueError(
                f"{directory}: expected a regime of {', '.join(sorted(scored))}, got {wanted!r}"
            )
        runs.append(ComparedRun(str(directory), directory, wanted, record, parts))
    if len({(run.directory.resolve(), run.regime) for run in runs}) < len(runs):
        raise ValueError("directories: expected other runs or regimes, got one of them twice")
    return _name(runs)


def _split(given: str) -> tuple[Path, str | None]:
    """Take DIR:REGIME apart; a directory may have a colon in its own name."""
    directory, colon, regime = given.rpartition(":")
    if not colon or Path(given).is_dir():
        return Path(given), None
    return Path(directory), Regime.parse(regime).name


def _name(runs: list[ComparedRun]) -> list[ComparedRun]:
    """Label by folder where that tells runs apart, else by path; by regime where several differ."""
    folders = Counter(
        {run.directory.resolve(): run.directory.resolve().name for run in runs}.values()
    )
    several = len({run.regime for run in runs}) > 1
    named = []
    for run in runs:
        folder = run.directory.resolve().name
        label = folder if folders[folder] == 1 else str(run.directory)
        label += f", {Regime.parse(run.regime).title}" if several else ""
        named.append(ComparedRun(label, run.directory, run.regime, run.record, run.parts))
    return named


def pairing_of(runs: Sequence[ComparedRun]) -> Pairing:
    """Tell what runs have in common, or refuse with what differs."""
    first = runs[0]
    pairing: Pairing = "sequences"
    for run in runs[1:]:
        ours, theirs = run.record.data, first.record.data
        if (tokens := ours.get("token_sha256")) and tokens == theirs.get("token_sha256"):
            continue
        if (text := ours.get("text_sha256")) and text == theirs.get("text_sha256"):
            pairing = "documents"
            continue
        raise ValueError(
            f"{run.directory}: expected the text of {first.directory}, got another: "
            + "; ".join(_differences(first, run))
        )
    return pairing


def _differences(first: ComparedRun, run: ComparedRun) -> list[str]:
    """List where the texts of two runs differ: there and here."""
    there, here = first.record.data, run.record.data
    keys = dict.fromkeys(["token_sha256", "text_sha256", *there, *here])
    told = [
        f"{key} {_short(there.get(key))} and {_short(here.get(key))}"
        for key in keys
        if there.get(key) != here.get(key)
    ]
    if not (there.get("text_sha256") and here.get("text_sha256")):
        told.append("text_sha256 is not known of both")
    return told


def _short(value: object) -> str:
    return value[:_SHOWN] if isinstance(value, str) and len(value) == 64 else str(value)
