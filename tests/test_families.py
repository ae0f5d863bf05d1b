"""From a configuration to its loader: the families that are known, and those of users."""

import json
import math
import os
import pickle
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_runs import FIXTURES, QUIET, ROOT, results, run, run_here, start, values
from safetensors.torch import load_file
from slurm_cluster import free_ports

from tube_lightning.checkpoints import (
    Checkpoint,
    Family,
    Sizes,
    companion,
    find_family,
    load_arm,
    load_block_model,
    read_checkpoint,
    read_sizes,
)

PAGE = (ROOT / "docs" / "FAMILIES.md").read_text()
MODULE, WRITE_CHECKPOINT = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(COMMAND,) = re.findall(r"^```bash\npython evaluate.py (.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OPTIONS = [*shlex.split(COMMAND.replace("\\\n", "")), "trainer.accelerator=cpu", "batch_size=2"]

ONE_FAMILY = """\
from tube_lightning.checkpoints import Family, Sizes

class Model:
    mask_id, vocab_size, block_size, max_length = 3, 4, 2, 8

    def encode(self, tokens):
        return None

    def log_probs(self, context, rows):
        raise NotImplementedError

FAMILY = Family("{name}", lambda checkpoint: Model(), lambda checkpoint: Sizes(4, 8), {names})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Do what the page says, as far as its command."""
    folder = tmp_path_factory.mktemp("families")
    (folder / "bigram_family.py").write_text(MODULE)
    subprocess.run([sys.executable, "-c", WRITE_CHECKPOINT], check=True, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    run(folder, *OPTIONS, "output_dir=whole")
    return folder / "whole"


@pytest.fixture
def modules(monkeypatch, tmp_path_factory):
    """Forget the modules and paths of a test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    ours = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(ours):
            del sys.modules[name]


def checkpoint_of(folder, **config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def module_of(folder, name, **names):
    """Write a module with one family, and return its path."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in names.items())
    (folder / f"{name}.py").write_text(ONE_FAMILY.format(name=name, names=arguments))
    return folder / f"{name}.py"


# ----- the page's example, evaluated


def bigram_nats(folder):
    """Average over both orders of each block of two, by hand: (any order, left to right)."""
    table = load_file(folder / "my_bigram" / "model.safetensors")["table"].double().exp().tolist()
    any_order = left_to_right = 0.0
    for tokens in np.load(folder / "tokens.npy").tolist():
        left_to_right += sum(math.log(table[a][b]) for a, b in pairwise(tokens))
        any_order += math.log(table[tokens[0]][tokens[1]])  # token 0 is given
        for start_of_block in range(2, len(tokens), 2):
            before, first, second = tokens[start_of_block - 1 : start_of_block + 2]
            in_order = table[before][first] * table[first][second]
            reversed_order = table[3][second] * table[before][first]  # 3 is the mask
            any_order += math.log((in_order + reversed_order) / 2)
    return any_order, left_to_right


def test_the_likelihood_of_a_family_of_ones_own(folder, whole):
    any_order, left_to_right = (nats / (6 * 7) for nats in bigram_nats(folder))
    exact = results(whole)["regimes"]["ao_arm"]["exact"]
    assert exact["nats_per_token"] == pytest.approx(any_order, rel=1e-6)
    assert exact["ppl"] == pytest.approx(math.exp(-any_order), rel=1e-6)
    assert results(whole)["arm"]["ppl"] == pytest.approx(math.exp(-left_to_right), rel=1e-6)


def test_processes_that_lightning_starts_import_the_plugin(folder, whole):
    run(folder, *OPTIONS, "output_dir=two", "trainer.devices=2")
    assert values(folder / "two") == values(whole)


@pytest.mark.slow
def test_tasks_that_slurm_starts_import_the_plugin(folder, whole):
    tasks = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "evaluate", "SLURM_NODEID": "0"}
    tasks |= {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1"}
    tasks |= {"SLURM_NODELIST": "localhost", "MASTER_ADDR": "127.0.0.1"}
    tasks |= {"MASTER_PORT": str(free_ports(1)[0])}
    started = []
    for rank in ("0", "1"):
        environment = os.environ | QUIET | tasks | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        options = [*OPTIONS, "output_dir=tasks", "trainer.devices=2"]
        started.append(start(folder, *options, environment=environment))
    for process in started:
        printed = process.communicate(timeout=600)
        assert process.returncode == 0, printed
    assert values(folder / "tasks") == values(whole)


@pytest.mark.usefixtures("no_figures")
def test_a_plugin_may_be_a_file_elsewhere(folder, whole, modules, monkeypatch, tmp_path):
    options = [o for o in OPTIONS if not o.startswith(("model.", "arm.", "data.path"))]
    options += [f"{name}.checkpoint={folder / 'my_bigram'}" for name in ("model", "arm")]
    options += [f"data.path={folder / 'tokens.npy'}", f"model.plugin={folder / 'bigram_family.py'}"]
    run_here(monkeypatch, tmp_path, *options, "output_dir=run")
    assert values(tmp_path / "run")["regimes"] == values(whole)["regimes"]


def test_without_its_plugin_the_type_is_unknown(folder, monkeypatch, capsys):
    options = [o for o in OPTIONS if not o.startswith("model.plugin")]
    with pytest.raises(SystemExit):
        run_here(monkeypatch, folder, *options, "output_dir=none")
    err = capsys.readouterr().err
    assert "my_bigram: expected model_type bd3lm or mdlm or sdar" in err
    assert "in config.json, got 'bigram'" in err
    assert "plugin=MODULE" in err
    assert "Traceback" not in err


# ----- which family


def test_published_layouts_and_training_checkpoints_are_one_family():
    sources = ["bd3lm_block4", "mdlm", "ar", "bd3lm_block4/last.ckpt"]
    assert {find_family(Checkpoint(FIXTURES / name)).name for name in sources} == {"bd3lm"}
    assert find_family(Checkpoint("demo:arm")).name == "bd3lm"


def test_sizes_are_the_familys(folder, modules, monkeypatch):
    assert read_sizes(FIXTURES / "bd3lm_block4") == Sizes(41, 24)
    assert read_sizes(FIXTURES / "bd3lm_block4" / "last.ckpt") == Sizes(41, 24)
    monkeypatch.chdir(folder)
    assert read_sizes("my_bigram", plugin="bigram_family") == Sizes(4, 8)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llada", "architectures": ["LLaDAModelLM"]}, "dense"),
        ({"model_type": "llada", "architectures": ["LLaDAMoEModelLM"]}, "moe"),
        ({"model_type": "llada", "architectures": ["Unheard", "LLaDAMoEModelLM"]}, "moe"),
        ({"model_type": "llada", "architectures": ["Unheard"]}, "dense"),
        ({"model_type": "llada", "architectures": None}, "dense"),
        ({"model_type": "llada"}, "dense"),
        ({"architectures": ["LLaDAMoEModelLM"]}, "moe"),
        ({"model_type": ["llada"], "architectures": [["LLaDAModelLM"]]}, None),
        ({}, None),
    ],
)
def test_architectures_decide_before_the_type(modules, tmp_path, config, expected):
    module_of(tmp_path, "dense", model_types=("llada",), architectures=("LLaDAModelLM",))
    module_of(tmp_path, "moe", architectures=("LLaDAMoEModelLM",))
    both = tmp_path / "both_families.py"
    both.write_text("from dense import FAMILY as DENSE\nfrom moe import FAMILY as MOE\n")
    family = find_family(Checkpoint(checkpoint_of(tmp_path / "model", **config), plugin=str(both)))
    assert (None if family is None else family.name) == expected


def test_a_plugin_comes_before_the_built_in_families(modules, tmp_path):
    plugin = str(module_of(tmp_path, "own_bd3lm", model_types=("bd3lm",)))
    checkpoint = Checkpoint(FIXTURES / "bd3lm_block4", plugin=plugin)
    assert find_family(checkpoint).name == "own_bd3lm"
    assert find_family(Checkpoint(FIXTURES / "bd3lm_block4")).name == "bd3lm"


def test_a_plugin_leaves_other_checkpoints_alone(modules, tmp_path):
    plugin = str(module_of(tmp_path, "unrelated", model_types=("other",)))
    assert load_block_model(FIXTURES / "bd3lm_block4", plugin=plugin).block_size == 4
    assert load_arm(FIXTURES / "ar", plugin=plugin).vocab_size == 41


def test_unknown_checkpoints_are_told_all_that_is_known(modules, tmp_path):
    folder = checkpoint_of(tmp_path / "model", model_type="x", architectures=["XForY"])
    plugin = str(module_of(tmp_path, "known", model_types=("known",), architectures=("Known",)))
    expected = (
        r"model: expected model_type known or bd3lm or mdlm.*, or architectures Known.*, in "
        r"config\.json, got 'x' \(load_arm .*\) with architectures \['XForY'\]; .* plugin=MODULE"
    )
    for ask in (read_sizes, load_block_model):
        with pytest.raises(ValueError, match=expected):
            ask(folder, plugin=plugin)


# ----- installed packages


def install(site, name, target):
    """Lay out a distribution as pip does."""
    information = site / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[tube_lightning.families]\nx = {target}\n")


def test_an_installed_package_offers_its_family(modules, monkeypatch, tmp_path):
    site = tmp_path / "site-packages"
    install(site, "offering", "offering_family:FAMILY")
    module_of(site, "offering_family", model_types=("offered", "bd3lm"))
    monkeypatch.syspath_prepend(site)
    folder = checkpoint_of(tmp_path / "model", model_type="offered")
    assert load_block_model(folder).block_size == 2
    assert read_sizes(folder) == Sizes(4, 8)
    assert find_family(Checkpoint(FIXTURES / "bd3lm_block4")).name == "bd3lm"  # ours comes first


def test_packages_are_not_imported_for_what_is_known(modules, monkeypatch, tmp_path):
    install(tmp_path, "broken", "no_such_module:FAMILY")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_block_model(FIXTURES / "bd3lm_block4").block_size == 4


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("no_such_module:FAMILY", r"no_such_module:FAMILY .* does not load \(ModuleN"),
        ("json:dumps", r"expected a Family in json:dumps, got <function dumps"),
    ],
)
def test_a_package_that_offers_no_family_is_named(modules, monkeypatch, tmp_path, target, match):
    """It is told, and no reason to refuse what others read."""
    install(tmp_path, "broken", target)
    monkeypatch.syspath_prepend(tmp_path)
    folder = checkpoint_of(tmp_path / "model", model_type="unknown")
    with pytest.warns(UserWarning, match=rf"tube_lightning\.families: .*{match}"):
        assert find_family(Checkpoint(folder)) is None


# ----- plugins


def test_what_a_plugin_makes_can_be_pickled(folder, modules):
    """Spawned processes get the path as well."""
    plugin = folder / "bigram_family.py"
    model = load_block_model(folder / "my_bigram", plugin=str(plugin))
    assert torch.equal(pickle.loads(pickle.dumps(model)).table, model.table)
    assert sys.path[-1] == str(folder)
    load_arm(folder / "my_bigram", plugin=str(plugin))
    assert sys.path.count(str(folder)) == 1


def test_a_plugin_hides_no_package(modules, monkeypatch, tmp_path):
    module_of(tmp_path, "beside", model_types=("beside",))
    (tmp_path / "wave.py").write_text("raise ImportError('this is not the standard library')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    folder = checkpoint_of(tmp_path / "model", model_type="beside")
    assert load_block_model(folder, plugin="beside").mask_id == 3
    import wave

    assert Path(wave.__file__).parent != tmp_path


@pytest.mark.parametrize(
    ("plugin", "error", "match"),
    [
        ("no_such_plugin", ValueError, r"plugin: no module no_such_plugin in .* or installed"),
        ("json.no_such", ValueError, r"plugin: no module json\.no_such in"),
        ("no_such.py", FileNotFoundError, r"plugin: .*no_such\.py: no such file"),
        ("./empty_plugin", ValueError, r"plugin: expected a module's name or .* got \./empty_plug"),
        (
            "empty_plugin",
            ValueError,
            r"a Family in <module .empty_plugin. from .*\.py.>, found none",
        ),
        ("json.py", ValueError, r"a name that no other module has, .*json\.py: json is .*__init__"),
        ("sys.py", ValueError, r"a name that no other module has, .*: sys is a part of Python"),
        ("lacking", ModuleNotFoundError, "No module named 'no_such_dependency'"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_named(modules, monkeypatch, tmp_path, plugin, error, match):
    monkeypatch.chdir(tmp_path)
    for name in ("empty_plugin", "json", "sys"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "lacking.py").write_text("import no_such_dependency")
    with pytest.raises(error, match=match):
        load_block_model(FIXTURES / "bd3lm_block4", plugin=plugin)


def test_arms_have_the_models_plugin():
    model = Checkpoint("folder", plugin="own")
    assert companion("arm", model, "other", dtype="bfloat16").plugin == "own"
    assert companion("arm", model, "other", plugin="another").plugin == "another"
    assert companion("arm", model, "auto") is None
    assert companion("arm", Checkpoint("demo:bd3lm_l8"), "auto") == Checkpoint("demo:arm")


# ----- what a family must be


def test_families_name_what_they_read():
    with pytest.raises(ValueError, match="toy: expected some model_types or architectures"):
        Family("toy", load_arm, Sizes)


def test_a_familys_names_are_no_string(folder):
    """In a process of its own, where no annotation is checked."""
    code = "from tube_lightning.checkpoints import Family\nFamily('toy', id, id, model_types='toy')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "TypeError: toy: expected a tuple of names, got 'toy'" in done.stderr


def test_what_a_family_loads_must_be_a_model(tmp_path):
    family = Family("toy", lambda checkpoint: object(), lambda checkpoint: Sizes(), ("toy",))
    for load in (family.load_block_model, family.load_arm):
        with pytest.raises(TypeError, match=r"toy: expected its load to return .* got object"):
            load(Checkpoint(tmp_path))


def test_a_model_may_be_both(folder, modules):
    plugin = str(folder / "bigram_family.py")
    for load in (load_block_model, load_arm):
        assert type(load(folder / "my_bigram", plugin=plugin)).__name__ == "Bigram"


def test_options_without_a_meaning_are_refused(folder, modules):
    plugin = str(folder / "bigram_family.py")
    with pytest.raises(
        ValueError, match=r"dtype: expected none for .*my_bigram, a bigram, got dty"
    ):
        load_block_model(folder / "my_bigram", plugin=plugin, dtype="bfloat16")


# ----- names and options


def test_demo_names_are_checkpoints_everywhere():
    assert load_block_model("demo:bd3lm_l8").block_size == 8
    assert load_arm("demo:arm").vocab_size == 1025
    assert read_checkpoint("demo:arm").config.causal
    assert read_sizes("demo:bd3lm_l16") == Sizes(1025, 128)
    with pytest.raises(ValueError, match="demo:arm: expected a diffusion model, got an autoreg"):
        load_block_model("demo:arm")
    with pytest.raises(ValueError, match=r"demo checkpoint: expected one of arm, .* got 'none'"):
        load_block_model("demo:none")


@pytest.mark.parametrize("load", [load_block_model, load_arm, read_checkpoint])
def test_unknown_options_are_refused_with_the_known_ones(load):
    known = "family, check, tensor_parallel, weights, block_size, n_heads, model_length, mask_id, "
    known += "dtype, revision or plugin"
    with pytest.raises(TypeError, match=f"blocksize, maskid: expected {known}"):
        load(FIXTURES / "bd3lm_block4", blocksize=4, maskid=3, n_heads=4)


def test_a_precision_has_two_spellings():
    named, typed = Checkpoint("x", dtype="bfloat16"), Checkpoint("x", dtype=torch.bfloat16)
    assert named == typed
    assert typed.torch_dtype == torch.bfloat16
    with pytest.raises(ValueError, match="dtype: expected float32, bfloat16, float16, got 'int64'"):
        load_block_model("x", dtype=torch.int64)


def test_an_arm_has_no_blocks():
    with pytest.raises(ValueError, match="block_size: expected none for an ARM, got 4"):
        load_arm(FIXTURES / "ar", block_size=4)
    assert load_arm(FIXTURES / "ar", block_size=1).max_length == 24


@pytest.mark.parametrize("sizes", [None, (4, 8)])
def test_sizes_of_another_type_are_named(modules, tmp_path, monkeypatch, sizes):
    plugin = str(module_of(tmp_path, "wrong_sizes", model_types=("wrong",)))
    folder = checkpoint_of(tmp_path / "model", model_type="wrong")
    family = find_family(Checkpoint(folder, plugin=plugin))
    object.__setattr__(family, "sizes", lambda checkpoint: sizes)
    with pytest.raises(ValueError, match="expected its sizes to return Sizes, got"):
        read_sizes(folder, plugin=plugin)
