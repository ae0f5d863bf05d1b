"""What settings have in common, wherever they are checked."""

import re
from collections.abc import Iterable


def check_whole_number(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number of at least ``least``, naming the setting.

    >>> check_whole_number("batch_size", 2.5, least=1)
    Traceback (most recent call last):
    ValueError: batch_size: expected a whole number of at least 1, got 2.5
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")


def refuse_renamed_key(words: Iterable[str], *, old: str, new: str) -> None:
    """End the program in one line if a word of its command line has the old name of a key.

    Whether the word sets the key, adds it (+, ++) or deletes it (~): Hydra would only tell that it
    does not know it.

    >>> refuse_renamed_key(["seed=1", "~model"], old="model", new="network")
    Traceback (most recent call last):
    SystemExit: error: model: this key is called network now: expected ~network, got ~model
    """
    for word in words:
        if match := re.match(rf"(~|\+{{0,2}}){old}(?=[.@=]|$)", word):
            renamed = match[1] + new + word[match.end() :]
            raise SystemExit(
                f"error: {old}: this key is called {new} now: expected {renamed}, got {word}"
            )
