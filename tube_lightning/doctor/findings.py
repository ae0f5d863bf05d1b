"""What a check found, or in a line why it found nothing; never a secret."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
Status = Literal["ok", "failed", "skipped"]

_LONGEST_REASON = 300
_SHORTEST_SECRET = 6
"""Shorter values of variables with secret names ("1", "yes") would blot out innocent text."""
_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_USER_IN_PATH = re.compile(r"([/\\](?:home|Users)[/\\])[^/\\\s'\"]+")


class NotMeasuredError(Exception):
    """A check has nothing to look at here, which is no failure."""


@dataclass(frozen=True)
class Finding(Generic[T]):
    """The outcome of one check."""

    status: Status
    value: T | None = None
    reason: str | None = None
    """One line, where the status is not ok."""


def attempt(check: Callable[[], T]) -> Finding[T]:
    """Run a check; whatever goes wrong is its reason, and the next one runs."""
    try:
        return Finding("ok", check())
    except NotMeasuredError as why:
        return Finding("skipped", reason=in_a_line(why))
    except Exception as error:  # the doctor meets machines that nobody has seen
        return Finding("failed", reason=in_a_line(error))


def in_a_line(error: Exception) -> str:
    """Tell an error in one line, without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    plain = isinstance(error, ValueError | OSError | NotMeasuredError)
    text = without_secrets(text if plain else f"{type(error).__name__}: {text}")
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."


def without_secrets(text: str) -> str:
    """Blot out keys and tokens of the environment, logins in addresses, and names of users."""
    for name, value in os.environ.items():
        if _SECRET_NAMES.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    home = str(Path.home())
    if len(home) > 1:
        text = text.replace(home, "~")
    return _USER_IN_PATH.sub(r"\1***", _LOGIN_IN_ADDRESS.sub("", text))


def clean(node: Any) -> Any:  # noqa: ANN401 (what JSON can hold)
    """Make nested values fit for JSON: no secrets, no numbers that JSON does not have."""
    if isinstance(node, dict):
        return {key: clean(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [clean(value) for value in node]
    if isinstance(node, str):
        return without_secrets(node)
    if isinstance(node, float) and (node != node or abs(node) == float("inf")):
        return str(node)
    return node
