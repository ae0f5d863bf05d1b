"""The folder tree is the data flow: a module imports only from stages above it."""

import ast
from pathlib import Path

import tube_lightning

ROOT = Path(tube_lightning.__file__).parent
STAGES = [
    "checks",
    "records",
    "data",
    "demo",
    "bounds",
    "orderings",
    "lattice",
    "networks",
    "checkpoints",
    "scoring",
    "surrogates",
    "rundir",
    "score_files",
    "metrics",
    "cluster",
    "sampling",
    "training",
    "report",
    "loggers",
    "evaluator",
]


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def stage(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def modules():
    return [p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem != "__init__"]


def test_every_module_belongs_to_a_stage():
    assert {stage(path) for path in modules()} <= set(STAGES)


def test_stages_import_only_from_stages_above():
    for path in modules():
        allowed = STAGES[: STAGES.index(stage(path)) + 1]
        for name in imported_modules(path):
            if name.startswith("tube_lightning."):
                assert name.split(".")[1] in allowed, f"{path} imports {name}"


def test_bounds_import_only_torch_and_jaxtyping():
    allowed = {"torch", "math", "jaxtyping", "tube_lightning", "typing", "collections"}
    for path in (ROOT / "bounds").glob("*.py"):
        for name in imported_modules(path):
            assert name.split(".")[0] in allowed, f"{path} imports {name}"
            assert not name.startswith("tube_lightning") or name.startswith("tube_lightning.bounds")


def test_reports_need_neither_lightning_nor_models():
    """Whoever has the parts can report on them: ``python -m tube_lightning.report DIR``."""
    ours = {"bounds", "checks", "metrics", "report", "rundir", "score_files"}
    for path in (ROOT / "report").rglob("*.py"):
        for name in imported_modules(path):
            top, _, rest = name.partition(".")
            assert top not in {"lightning", "hydra", "transformers", "datasets"}, path
            assert top != "tube_lightning" or rest.split(".")[0] in ours, f"{path} imports {name}"


def test_no_function_has_the_name_of_its_module():
    """A re-export would hide the module from Hydra's ``_target_``."""
    for path in modules():
        names = {n.name for n in ast.parse(path.read_text()).body if hasattr(n, "name")}
        assert path.stem not in names, path
