"""The command line: what there is to set, and what a mistyped key was meant to be.

Read from the YAML files as they stand, so that settings are shown with their comments.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

_HELP_FLAGS = {"--help", "-h"}
_EXPERIMENT, _TRAINER = "experiment", "trainer"
"""Groups whose files belong to one script each."""
_OF_TRAINING = "train_"
"""How the names of experiments of train.py begin."""


def help_or_check(
    words: Sequence[str], configs: Path, name: str, more: Mapping[str, Any] | None = None
) -> None:
    """Print the help and end the program if a word asks for it; else refuse unknown keys.

    ``name`` is the script's own file in ``configs``; ``more`` are settings that no file has.
    """
    if _HELP_FLAGS.intersection(words):
        print(help_text(words, configs, name, more or {}))
        raise SystemExit(0)
    check_keys(words, configs, name, more or {})


def help_text(words: Iterable[str], configs: Path, name: str, more: Mapping[str, Any]) -> str:
    """Fill in the template of a script's file: its groups, and its settings with comments."""
    text = (configs / f"{name}.yaml").read_text(encoding="utf-8")
    main = _load(configs / f"{name}.yaml")
    chosen = _choices(main) | _choices_of(words)
    template: str = main["hydra"]["help"]["template"]
    own = text.partition("\nhydra:")[0].partition("hydra_logging: none\n")[2].strip()
    settings = [own]
    for group, choice in chosen.items():
        path = configs / group / f"{choice}.yaml"
        if group != _EXPERIMENT and path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            settings.append(f"{group}: # {choice}\n" + "\n".join(f"  {line}" for line in lines))
    if more:
        settings.append(OmegaConf.to_yaml(dict(more)).strip())
    filled = template.replace("$APP_CONFIG_GROUPS", _list_groups(configs, name, chosen))
    return filled.replace("$CONFIG", "\n".join(settings))


def _load(file: Path) -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(file))
    return dict(content)


def _choices(main: Mapping[str, Any]) -> dict[str, str]:
    """Read the groups of a script and what they are by default."""
    groups = [item for item in main["defaults"] if isinstance(item, dict)]
    return {
        group: choice
        for item in groups
        for group, choice in item.items()
        if not group.startswith("override")
    }


def _choices_of(words: Iterable[str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in words if re.fullmatch(r"\w+=[\w-]+", word))
    return {group: choice for group, _, choice in pairs}


def _list_groups(configs: Path, name: str, chosen: Mapping[str, Any]) -> str:
    """List what can be chosen; experiments of this script alone, with a line on each."""
    lines = []
    for group in chosen:
        files = sorted((configs / group).glob("*.yaml")) if (configs / group).is_dir() else []
        if group == _EXPERIMENT:
            of_training = name == "train"
            ours = [f for f in files if f.stem.startswith(_OF_TRAINING) == of_training]
            lines += ["experiment:", *(f"  {file.stem}: {_first_comment(file)}" for file in ours)]
        elif files and group != _TRAINER:
            lines.append(f"{group}: {', '.join(file.stem for file in files)}")
    return "\n".join(lines) + "\n" if lines else ""


def _first_comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    told = (line.removeprefix("# ") for line in lines if line.startswith("# "))
    return next(line for line in told if not line.startswith("@"))


def check_keys(words: Iterable[str], configs: Path, name: str, more: Mapping[str, Any]) -> None:
    """End the program in one line if a word sets what no file has, with the nearest that one has.

    Words that add (+), delete (~) or are Hydra's own are left to Hydra.
    """
    known = {*_keys(configs, name), *_paths(more)}
    leaves = known - {key.rpartition(".")[0] for key in known}  # some refer to whole nodes
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals or not re.fullmatch(r"[\w.]+", key) or key.startswith("hydra"):
            continue
        if key in known or any(key.startswith(f"{leaf}.") for leaf in leaves):
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]}?" if near else "--help lists all"
        raise SystemExit(f"error: {key}: there is no such setting; {meant}")


def _keys(configs: Path, name: str) -> Iterator[str]:
    """Name every setting of a script, in whichever choice of a group it is."""
    main = _load(configs / f"{name}.yaml")
    yield from _paths({key: main[key] for key in main if key not in ("defaults", "hydra")})
    for group in _choices(main):
        yield group
        for file in (configs / group).glob("*.yaml") if group != _EXPERIMENT else ():
            content = {k: v for k, v in _load(file).items() if k != "defaults"}
            yield from _paths({group: content})


def _paths(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Name all nodes of a tree: those that hold others, too."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")
