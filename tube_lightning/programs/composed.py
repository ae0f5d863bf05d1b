"""Programs whose words compose a configuration: Hydra."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import hydra
from omegaconf import OmegaConf

from tube_lightning.programs.files import folder_of
from tube_lightning.usage import help_or_check

Config: TypeAlias = Any
"""A DictConfig of omegaconf; its own annotations are older than what beartype reads."""


def run_composed(
    task: Callable[[Config], None],
    name: str,
    words: list[str],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Call a task with ``configs/NAME.yaml`` as the words change it, or print the help.

    ``more`` are settings that no file has.
    """
    folder, command_line = folder_of("configs"), sys.argv
    help_or_check(words, folder, name, more)

    def run(config: Config) -> None:
        sys.argv = command_line  # what Lightning starts for the other devices
        task(config)

    compose = hydra.main(version_base="1.3", config_path=str(folder), config_name=name)
    sys.argv = [command_line[0], *words]
    try:
        compose(run)()
    finally:
        sys.argv = command_line


def plain_values(config: Config) -> dict[str, Any]:
    """Return a configuration as plain values, references replaced."""
    return cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True))
