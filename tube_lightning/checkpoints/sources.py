"""Where a model's files are: a local folder, or the model hub."""

import json
import re
from os import PathLike
from pathlib import Path
from typing import Any

Source = str | PathLike[str]

CONFIG_FILE = "config.json"
MODEL_FOLDER = "model"
"""of a training run: the trained network in the published layout"""
LAST_STATE_FILE = "last.ckpt"
"""of a training run: the newest state to resume from"""
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def local_file(source: Source) -> Path | None:
    """Return the path of a file, which must be a training checkpoint; None for any other source."""
    path = Path(source).expanduser()
    if not path.is_file():
        return None
    if path.suffix in (".safetensors", ".json"):
        raise ValueError(f"{source}: expected the path of the folder, {path.parent}")
    return path


def find_file(source: Source, name: str, revision: str | None = None) -> Path:
    """Return a file of a local folder or of a hub id; nothing but that file is downloaded."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ValueError(f"revision: expected none for the local {folder}, got {revision!r}")
        if not (folder / name).is_file():
            names = sorted(path.name for path in folder.iterdir())
            raise FileNotFoundError(
                f"{folder}: expected a folder with {name}, found {', '.join(names) or 'nothing'}"
            )
        return folder / name
    is_id = isinstance(source, str) and _HUB_ID.fullmatch(source) and source[0] != "."
    if not is_id or folder.suffix in (".ckpt", ".pt", ".pth"):
        raise FileNotFoundError(f"{source}: no such file or folder")
    return _download(str(source), name, revision)


def _download(repository: str, name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download  # slow to import, and local folders do without

    try:
        return Path(hf_hub_download(repository, name, revision=revision))
    except Exception as error:  # the hub's client lets its network stack's errors through
        raise FileNotFoundError(
            f"{repository}: no such local folder, and no {name} from the model hub "
            f"({type(error).__name__}: {str(error).splitlines()[0]}). Without access to the hub, "
            f"give the path of a local folder with the files of the model"
        ) from error


class _Fields(dict[str, Any]):
    """The fields of a file: one that is not there is told, with the file."""

    def __init__(self, fields: dict[str, Any], path: Path) -> None:
        super().__init__(fields)
        self.path = path

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 (of a field, as its author likes)
        raise ValueError(f"{self.path}: expected a field {name!r}, found none")


def read_config(source: Source, revision: str | None = None) -> dict[str, Any]:
    """Read a model's ``config.json``; to ask for a field that it lacks is a ``ValueError``."""
    path = find_file(source, CONFIG_FILE, revision)
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON ({error})") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(config).__name__}")
    return _Fields(config, path)
