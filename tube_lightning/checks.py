"""What settings have in common, wherever they are checked."""


def check_whole_number(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number of at least ``least``, naming the setting.

    >>> check_whole_number("batch_size", 2.5, least=1)
    Traceback (most recent call last):
    ValueError: batch_size: expected a whole number of at least 1, got 2.5
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
