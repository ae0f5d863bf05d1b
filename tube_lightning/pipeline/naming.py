"""The directory of an evaluation that nobody named: by model, text and protocol."""

import re
from pathlib import Path

from tube_lightning.checkpoints import LAST_STATE_FILE, MODEL_FOLDER, Checkpoint

_HOME = Path("outputs/evaluate")
_SAYS_NOTHING = {MODEL_FOLDER, LAST_STATE_FILE, ".", ".."}
_PATTERN = re.compile(r"[*?\[]")


def default_directory(model: Checkpoint, data: str, path: object, protocol: str) -> str:
    """Name a directory, so that another model, text or protocol has another one.

    ``data`` is the name of the text in ``configs/data``; files of one's own go by theirs.

    >>> model = Checkpoint("outputs/train/bd3lm_l4/model", weights="raw")
    >>> default_directory(model, "text", "corpus/*.jsonl", "paper")
    'outputs/evaluate/bd3lm_l4-raw_corpus_paper'
    >>> default_directory(Checkpoint("kuleshov-group/mdlm-owt"), "ptb", None, "default")
    'outputs/evaluate/mdlm-owt_ptb_default'
    """
    raw = "" if model.weights == "ema" else f"-{model.weights}"
    return str(_HOME / f"{_last_name(str(model))}{raw}_{_name_text(data, path)}_{protocol}")


def _name_text(data: str, path: object) -> str:
    """Take the name of the first file, or of the folder that a pattern is in."""
    if data not in ("text", "tokens") or path is None:
        return data
    first = path if isinstance(path, str) else next(iter(path), data)  # type: ignore[call-overload]
    return "stdin" if first == "-" else Path(_last_name(str(first))).stem


def _last_name(path: str) -> str:
    """Return the last part of a path or hub id that tells one from another, as a file's name."""
    parts = [part for part in re.split(r"[/\\:]", path) if part and not _PATTERN.search(part)]
    telling = [part for part in parts if part not in _SAYS_NOTHING] or parts or ["model"]
    return re.sub(r"[^\w.-]+", "-", telling[-1]).removesuffix(".ckpt")
