"""The folder tree is the data flow: a module imports only from stages above it."""

import ast
import re
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import tube_lightning

ROOT = Path(tube_lightning.__file__).parent
REPOSITORY = ROOT.parent
MAP = re.findall(r"^    (\w+)  +(\S.*)$", tube_lightning.__doc__, re.M)
STAGES = [stage for stage, _ in MAP]


def imports_of(path):
    """Yield (module, names) of all imports, those inside functions too; not those for types."""
    tree = ast.parse(path.read_text())
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module, [alias.name for alias in node.names]


def stage_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def modules():
    return [p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem != "__init__"]


def module_name(path):
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_the_map_has_every_stage_once():
    assert {stage_of(path) for path in modules()} == set(STAGES)
    assert len(STAGES) == len(set(STAGES)) > 20


def test_readme_shows_the_same_map():
    text = (REPOSITORY / "README.md").read_text()
    (block,) = re.findall(r"## The map\n.*?```text\n(.*?)```", text, re.S)
    assert re.findall(r"^(\w+)  +(\S.*)$", block, re.M) == MAP


def test_stages_import_only_from_stages_above():
    for path in modules():
        allowed = STAGES[: STAGES.index(stage_of(path)) + 1]
        for name, _ in imports_of(path):
            if name.startswith("tube_lightning."):
                assert name.split(".")[1] in allowed, f"{path} imports {name}"


def test_no_modules_import_each_other():
    """Inside a stage too, and by imports in functions too."""
    known = {module_name(path): path for path in modules()}
    graph = {}
    for name, path in known.items():
        targets = set()
        for module, names in imports_of(path):
            inner = {f"{module}.{one}" for one in names} & known.keys()
            targets |= inner or ({module} & known.keys())
        graph[name] = targets - {name}
    TopologicalSorter(graph).prepare()  # raises on a cycle


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_other_stages_are_used_by_what_they_export(path):
    for name, names in imports_of(path):
        _, _, rest = name.partition("tube_lightning.")
        stage, _, inside = rest.partition(".")
        if not rest or stage == stage_of(path) or not (ROOT / stage).is_dir():
            continue
        assert not inside, f"{path} looks into {name}"
        exported = getattr(import_module(name), "__all__", None)
        if exported is not None:
            assert set(names) <= set(exported), f"{path} imports {names} from {name}"


def test_packages_export_what_is_there():
    for folder in sorted(path for path in ROOT.rglob("*") if (path / "__init__.py").is_file()):
        package = import_module(module_name(folder / "__init__.py"))
        for name in getattr(package, "__all__", ()):
            assert hasattr(package, name), f"{package.__name__} has no {name}"


def test_bounds_import_only_torch_and_jaxtyping():
    allowed = {"torch", "math", "jaxtyping", "typing", "collections"}
    allowed |= {"dataclasses", "functools", "inspect", "re", "tube_lightning"}
    ours = ("tube_lightning.bounds", "tube_lightning.checks", "tube_lightning.protocol")
    for path in (ROOT / "bounds").glob("*.py"):
        for name, _ in imports_of(path):
            top = name.split(".")[0]
            assert top in allowed, f"{path} imports {name}"
            assert top != "tube_lightning" or name.startswith(ours), f"{path} imports {name}"


def test_reports_need_neither_lightning_nor_models():
    """Whoever has the parts can report on them: ``python -m tube_lightning.report DIR``."""
    needed, found = {"measure", "report", "compare"}, set()
    while needed:
        stage = needed.pop()
        found.add(stage)
        for path in [*ROOT.glob(f"{stage}.py"), *(ROOT / stage).rglob("*.py")]:
            for name, _ in imports_of(path):
                top, _, rest = name.partition(".")
                assert top not in {"lightning", "hydra", "transformers", "datasets"}, path
                if top == "tube_lightning" and rest:
                    needed |= {rest.split(".")[0]} - found
    assert not found & {"networks", "checkpoints", "evaluator", "data"}


def targets_of(node):
    """Yield every ``_target_`` of a configuration."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "_target_")
        for value in node.values():
            yield from targets_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from targets_of(value)


def test_targets_of_configurations_are_exported():
    """A file of bounds/ has the name of its function: Hydra finds what the package exports."""
    found = 0
    for path in (REPOSITORY / "configs").rglob("*.yaml"):
        for target in targets_of(yaml.safe_load(path.read_text())):
            if not target.startswith("tube_lightning."):
                continue
            module, _, name = target.rpartition(".")
            assert module.count(".") == 1, f"{path}: {target} is inside of a stage"
            assert hasattr(import_module(module), name), f"{path}: no {target}"
            assert name in getattr(import_module(module), "__all__", [name]), target
            found += 1
    assert found > 10


def test_no_two_classes_have_one_name():
    """Private ones neither: a reader searches by name."""
    homes = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module_name(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
