"""Folders that people give as a model: the model's own, a training run's, or something else."""

import json
from pathlib import Path
from typing import Any

from tube_lightning.checkpoints.sources import CONFIG_FILE, LAST_STATE_FILE, MODEL_FOLDER, Source

_OF_TRAINING, _OF_AN_EVALUATION = {"datamodule", "trainer"}, {"layout_of_scores"}
"""Settings that the claim of such a run, also called config.json, has and no model's does."""
_MAX_LISTED = 5


def find_model(source: Source, weights: str = "ema") -> Source:
    """Return the model of a training run, for its folder; every other source as it is.

    The model has the average of weights; others are in the run's newest state.
    Folders that hold no model are refused, by what they are and what to give instead.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return source
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(
            f"{folder}: expected a folder with {CONFIG_FILE}, found {_list_names(folder)}"
            f"{_advise(folder)}"
        )
    claim = _read_claim(folder / CONFIG_FILE)
    if claim.keys() >= _OF_AN_EVALUATION:
        raise ValueError(
            f"{folder}: expected a model, got the directory of an evaluation; `python -m "
            f"tube_lightning.report {folder}` reports on it again"
        )
    if not claim.keys() >= _OF_TRAINING:
        return source
    state = folder / LAST_STATE_FILE
    if (folder / MODEL_FOLDER / CONFIG_FILE).is_file():
        return folder / MODEL_FOLDER if weights == "ema" or not state.is_file() else state
    newest = f"its newest state is {state}: give that" if state.is_file() else "it has no state yet"
    raise ValueError(
        f"{folder}: expected a model, got a training run that has not ended; {newest}, or run its "
        "command again, which continues"
    )


def _read_claim(path: Path) -> dict[str, Any]:
    """Read the settings of a run; whoever reads a model's says what is wrong with them."""
    try:
        claim = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return claim if isinstance(claim, dict) else {}


def _list_names(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more or "nothing"


def _advise(folder: Path) -> str:
    """Say what to give instead, where the folder shows it."""
    models = sorted(path.parent for path in folder.glob(f"*/{CONFIG_FILE}"))
    if models:
        return f"; give the folder of a model in it: {models[-1]}"
    if states := sorted(folder.glob("*.ckpt")):
        return f"; give the training checkpoint itself: {states[-1]}"
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        return f"; the weights are there: copy the {CONFIG_FILE} that belongs to them beside them"
    return ""
