"""One configuration for each directory: who continues must bring the same, or is told what differs.

A rerun in its directory continues, and never mixes scores of different settings.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tube_lightning.rundir.names import CLAIM_FILE, RUN_FILE
from tube_lightning.whole_files import write_text

_SUBJECTS = {
    "arm": "ARM",
    "arm_ft": "fine-tuned ARM",
    "data": "text",
    "datamodule": "text",
    "documents_sha256": "text",
    "length": "text",
    "num_bytes": "text",
    "num_sequences": "text",
    "order": "text",
    "token_sha256": "text",
}
"""What people call the settings that begin so; the others go by their names."""
_HASHES = {
    "weights_sha256": "other weights",
    "token_sha256": "other tokens",
    "documents_sha256": "other documents",
}
"""What it means that such a number differs: nobody can read it."""
_FEW = 2

Difference = tuple[str, Any, Any]
"""A key, its value there, its value now."""


def claim_directory(
    directory: str | Path,
    config: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    may_change: Sequence[str] = (),
) -> Path:
    """Make ``directory`` the home of one configuration, or refuse with the keys that differ.

    The configuration is written atomically the first time; later runs must bring the same, except
    for keys that match a pattern of ``may_change``, of which the newest value is kept. ``settings``
    are what users gave, as in the run's record: a refusal tells those that differ.
    """
    directory = Path(directory)
    path = directory / CLAIM_FILE
    there = read_claim(directory)
    if there is None:
        write_text(path, json.dumps(config, indent=2) + "\n")
        return directory
    differing = _compare(there, config)
    refused = [one for one in differing if not any(fnmatch(one[0], p) for p in may_change)]
    if refused:
        record = directory / RUN_FILE
        before = json.loads(record.read_text()).get("config") if record.exists() else None
        told = _compare(before, settings) if before and settings else []
        raise ValueError(_refusal(directory, refused, told))
    if differing:
        write_text(path, json.dumps(config, indent=2) + "\n")
    return directory


def read_claim(directory: str | Path) -> dict[str, Any] | None:
    """Read the configuration that a directory is the home of; None if it has none yet."""
    path = Path(directory) / CLAIM_FILE
    claim: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return claim


def release_directory(directory: str | Path) -> None:
    """Take the configuration of a run away that has left nothing to continue."""
    (Path(directory) / CLAIM_FILE).unlink(missing_ok=True)


def _compare(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """List the keys that differ, as JSON holds them."""
    theirs, ours = flat_settings(there), flat_settings(json.loads(json.dumps(now)))
    keys = sorted(ours.keys() | theirs.keys(), key=lambda key: (key.count("."), key))
    return [(k, theirs.get(k), ours.get(k)) for k in keys if ours.get(k) != theirs.get(k)]


def _refusal(directory: Path, refused: list[Difference], told: list[Difference]) -> str:
    """Say in a line what differs, as people call it; then by key, as users gave it."""
    refused = _without_repeats(refused)
    subjects = list(dict.fromkeys(_subject(key) for key, *_ in refused))
    lines = _tell([*(one for one in told if _subject(one[0]) in subjects), *refused])
    what = " and ".join(f"another {subject}" for subject in subjects)
    first = f"output_dir: {directory} belongs to a run with {what}"
    then = "choose another output_dir, or remove it"
    if len(lines) <= _FEW:
        return f"{first} ({'; '.join(lines)}); {then}"
    return "\n  ".join([f"{first}; {then}:", *lines])


def _without_repeats(differences: Iterable[Difference]) -> list[Difference]:
    """Keep the first of the keys that repeat one value, as a setting and who it is handed to do."""
    first: dict[tuple[str, str], Difference] = {}
    for key, there, now in differences:
        first.setdefault((_leaf(key), repr((there, now))), (key, there, now))
    return list(first.values())


def _tell(differences: Iterable[Difference]) -> list[str]:
    """Write each difference; a hash only where nothing else tells what it is about."""
    distinct = _without_repeats(differences)
    readable = [one for one in distinct if _leaf(one[0]) not in _HASHES]
    explained = {_subject(key) for key, *_ in readable}
    lines = [f"{key}: there {there!r}, now {now!r}" for key, there, now in readable]
    hashes = {_subject(key): _HASHES[_leaf(key)] for key, *_ in distinct if _leaf(key) in _HASHES}
    return [*lines, *(f"{of}: {told}" for of, told in hashes.items() if of not in explained)]


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _subject(key: str) -> str:
    """Name what a setting is about.

    >>> _subject("models.arm.weights_sha256"), _subject("protocol.seed"), _subject("seed")
    ('ARM', 'protocol', 'seed')
    """
    first = key.removeprefix("models.").partition(".")[0]
    return _SUBJECTS.get(first, first)


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
