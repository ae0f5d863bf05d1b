"""Modules of a user's own."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType


def import_plugin(plugin: str) -> ModuleType:
    """Import a module by its dotted name, or by the path of its ``.py`` file.

    A module that is imported runs: that is the choice of the user who names it, and no checkpoint
    can make it. Names are found in the current directory as well. It, or the folder of the file,
    stays on ``sys.path``, where spawned processes look for the module too; it is the last entry, so
    that no file in it hides a package.
    """
    if plugin.endswith(".py"):
        return _import_file(Path(plugin).expanduser().resolve())
    return _import_name(plugin, Path.cwd())


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"plugin: {path}: no such file")
    module = _import_name(path.stem, path.parent)
    found = getattr(module, "__file__", None) or "a part of Python"
    if Path(found).resolve() != path:
        raise ValueError(
            f"plugin: expected a name that no other module has, got {path}: {path.stem} is {found}"
        )
    return module


def _import_name(name: str, folder: Path) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"plugin: expected a module's name or the path of a .py file, got {name}")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):  # not one that the module itself imports
            raise ValueError(f"plugin: no module {name} in {folder} or installed") from error
        raise
