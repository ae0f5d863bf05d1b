"""Nothing of a checkpoint's pickle is ever executed, and its tensors come out right."""

import collections
import contextlib
import enum
import functools
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import omegaconf
import pytest
import torch

from tube_lightning.checkpoints.pickles import StandIn, read_pickle
from tube_lightning.checkpoints.torch_archive import StoredTensor, open_archive


class Color(enum.Enum):
    RED = 1


class Point(collections.namedtuple("Point", "x y")):
    pass


class Slotted:
    __slots__ = ("a",)


class Calls:
    """Pickles as a call of anything."""

    def __init__(self, function, *args, state=None):
        self.recipe = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.recipe


def content_of(path):
    with open_archive(path) as archive:
        return archive.content


def saved(tmp_path, content):
    torch.save(content, tmp_path / "file.ckpt")
    return tmp_path / "file.ckpt"


def written(tmp_path, pickled, storages=None, **extra):
    """Write an archive by hand."""
    path = tmp_path / "file.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
        for name, data in extra.items():
            archive.writestr(f"archive/{name}", data)
    return path


def glob(path):
    module, name = path.rsplit(".", 1)
    return f"c{module}\n{name}\n".encode()


def text(string):
    data = string.encode()
    return b"X" + struct.pack("<I", len(data)) + data


# What a hostile pickle may do with a global F and a command: pickle programs, without the STOP.
ATTACKS = {
    "reduce": lambda f, command: glob(f) + b"(" + text(command) + b"tR",
    "inst": lambda f, command: b"(" + text(command) + b"i" + glob(f)[1:],
    "obj": lambda f, command: b"(" + glob(f) + text(command) + b"o",
    "newobj": lambda f, command: glob(f) + b"(" + text(command) + b"t\x81",
    "newobj_ex": lambda f, command: glob(f) + b"(" + text(command) + b"t}\x92",
    "stack_global": lambda f, command: (
        text(f.rsplit(".", 1)[0]) + text(f.rsplit(".", 1)[1]) + b"\x93(" + text(command) + b"tR"
    ),
    "dotted_name": lambda f, command: (
        text(f.rsplit(".", 1)[0]) + text(f"{f.rsplit('.', 1)[1]}.__call__") + b"\x93("
        + text(command) + b"tR"
    ),
    "called_result": lambda f, command: (
        glob("functools.partial") + b"(" + glob(f) + text(command) + b"tR)R"
    ),
    "getattr": lambda f, command: (
        glob("builtins.getattr") + b"(" + glob("builtins.__import__") + b"(" + text("os") + b"tR"
        + text("system") + b"tR(" + text(command) + b"tR"
    ),
    "appends_to_map": lambda f, command: (
        glob("builtins.list") + b"(" + glob("builtins.map") + b"(" + glob(f) + b"(" + text(command)
        + b"ltRtR"
    ),
    "build_state": lambda f, command: (
        glob("some.Class") + b")\x81}(" + text("__setstate__") + glob(f) + b"ub" + text(command)
        + b"b"
    ),
    "build_slots": lambda f, command: (
        glob("some.Class") + b")\x81(N}(" + text("append") + glob(f) + b"utb" + text(command) + b"a"
    ),
    "setitem": lambda f, command: (
        glob("builtins.globals") + b")R" + text("print") + glob(f) + b"s"
    ),
    "nested_in_tensor": lambda f, command: (
        glob("torch._utils._rebuild_tensor_v2") + b"(" + glob(f) + b"(" + text(command)
        + b"tRK\x00))NNtR"
    ),
}  # fmt: skip


def test_the_attacks_are_real(tmp_path):
    """Unpickled in the usual way, they run: otherwise the tests below would show nothing."""
    ran = set()
    for name, attack in ATTACKS.items():
        sentinel = tmp_path / name
        with contextlib.suppress(Exception):
            pickle.loads(b"\x80\x04" + attack("os.system", f"touch {sentinel}") + b".")
        if sentinel.exists():
            ran.add(name)
    assert ran >= {"reduce", "inst", "obj", "stack_global", "dotted_name", "getattr"}
    assert ran >= {"called_result", "appends_to_map", "nested_in_tensor"}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("place", ["top", "hyper_parameters", "state_dict"])
def test_an_attack_does_nothing(tmp_path, attack, place):
    sentinel = tmp_path / "ran"
    before = dict(vars(StandIn))
    program = ATTACKS[attack]("os.system", f"touch {sentinel}")
    if place != "top":
        program = b"}" + text(place) + b"}" + text("config") + program + b"ss"
    content = content_of(written(tmp_path, b"\x80\x04" + program + b"."))
    assert not sentinel.exists()
    assert dict(vars(StandIn)) == before
    assert content is not None


@pytest.mark.parametrize(
    "function", ["builtins.eval", "builtins.exec", "subprocess.getoutput", "posix.system"]
)
def test_other_functions_do_nothing_either(tmp_path, function):
    sentinel = tmp_path / "ran"
    command = f"touch {sentinel}"
    if function.startswith("builtins"):
        command = f"__import__('os').system({command!r})"
    content_of(written(tmp_path, ATTACKS["reduce"](function, command) + b"."))
    assert not sentinel.exists()


def test_classes_that_pickle_as_calls_do_nothing(tmp_path):
    sentinel = tmp_path / "ran"
    evil = Calls(os.system, f"touch {sentinel}")
    with_state = Calls(collections.Counter, state={"x": evil})
    path = saved(
        tmp_path,
        {"state_dict": {"w": torch.ones(2), "evil": evil}, "hyper_parameters": [with_state, evil]},
    )
    with open_archive(path) as archive:
        found = archive.content["state_dict"]
        assert found["w"].read().tolist() == [1, 1]
    assert repr(found["evil"]) == "<stand-in for posix.system>"
    assert not sentinel.exists()
    torch.load(path, weights_only=False)  # the control
    assert sentinel.exists()


@pytest.mark.parametrize(
    "program",
    [
        glob("some.Class")
        + b"(N}"
        + text("__setstate__")
        + text("x")
        + b"stb.",  # state on a class
        glob("some.Class") + text("x") + b"a.",  # append to a class
        b"K\x01(tR.",  # call a number
        b"}}" + text("x") + b"K\x01sb.",  # state on a dict
    ],
)
def test_programs_that_make_no_sense_are_refused(tmp_path, program):
    before = dict(vars(StandIn))
    with pytest.raises(ValueError, match=r"file\.ckpt: corrupt pickle"):
        content_of(written(tmp_path, program))
    assert dict(vars(StandIn)) == before


def test_objects_become_stand_ins(tmp_path):
    """Everything that checkpoints carry around, by class of pickle operation."""
    content = {
        "enum": Color.RED,
        "named": Point(1, 2),
        "partial": functools.partial(max, 1),
        "function": content_of,
        "numpy": [np.float64(1.5), np.arange(3)],
        "set": {1, 2},
        "bytes": b"abc",
        "path": Path("a/b"),
        "torch": [torch.float32, torch.device("cpu"), torch.Size([1])],
        "default": collections.defaultdict(list, {"a": [1]}),
        "deque": collections.deque([1, 2]),
        "generator": np.random.default_rng(0),
        "slots": Slotted(),
        "complex": 1j,
    }
    found = content_of(saved(tmp_path, content))
    assert found.keys() == content.keys()
    assert found["default"] == {"a": [1]}
    assert found["enum"].args == (1,)
    assert isinstance(found["partial"], StandIn)
    assert found["deque"].elements == [1, 2]


def test_shared_and_cyclic_parts(tmp_path):
    tree = {"list": []}
    tree["list"].append(tree)
    laughs = [1]
    for _ in range(60):  # 2^60 leaves if sharing were lost
        laughs = [laughs, laughs]
    tree["laughs"] = laughs
    found = content_of(saved(tmp_path, tree))
    assert found["list"][0] is found
    assert found["laughs"][0] is found["laughs"][1]


def test_deep_nesting_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"file\.ckpt: .*recursion"):
        content_of(written(tmp_path, b"]" * 100_000 + b"a" * 99_999 + b"."))


def test_omegaconf_becomes_plain(tmp_path):
    plain = {"a": {"b": [1, 2.5, None, "x"], "c": True}, "d": "${a.c}", "e": "???"}
    config = omegaconf.OmegaConf.create(plain)
    assert content_of(saved(tmp_path, {"config": config}))["config"] == plain


@pytest.mark.parametrize(
    "dtype",
    [
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    ],
)
def test_tensors_of_each_type(tmp_path, dtype):
    tensor = (torch.arange(24).reshape(2, 3, 4) % 5).to(getattr(torch, dtype))
    views = [tensor, tensor[1, :, 2], tensor.transpose(0, 2), tensor[0, 0, 0], tensor[:0]]
    content = [*views, torch.empty(0, dtype=tensor.dtype), torch.nn.Parameter(torch.ones(2))]
    path = saved(tmp_path, content)
    with open_archive(path) as archive:
        found = [stored.read() for stored in archive.content]
        again = torch.load(path, weights_only=True)
    for got, expected in zip(found, again, strict=True):
        assert got.dtype == expected.dtype
        assert got.stride() == expected.stride()
        assert torch.equal(got, expected)
    assert found[0].data_ptr() == found[3].data_ptr()  # shared as before


def rebuilt(storage=b"\0" * 16, dtype="Float", numel=4, offset=0, shape=(4,), stride=(1,)):
    """Pickle a tensor with given arguments."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.pid if isinstance(obj, Storage) else None

    class Storage:
        pid = ("storage", getattr(torch, f"{dtype}Storage"), "0", "cpu", numel)

    buffer = io.BytesIO()
    args = (Storage(), offset, shape, stride, False, collections.OrderedDict())
    Pickler(buffer, 2).dump([Calls(torch._utils._rebuild_tensor_v2, *args)])
    return buffer.getvalue(), {"0": storage}


def test_big_endian_files_are_swapped(tmp_path):
    pickled, _ = rebuilt()
    storages = {"0": np.array([1, 2, 3, 4.5], dtype=">f4").tobytes()}
    with open_archive(written(tmp_path, pickled, storages, byteorder=b"big")) as archive:
        assert archive.content[0].read().tolist() == [1, 2, 3, 4.5]


@pytest.mark.parametrize(
    "hostile",
    [
        {"offset": 1},
        {"offset": -1},
        {"offset": 1 << 70},
        {"offset": True},
        {"shape": (5,)},
        {"shape": (1 << 40,), "stride": (0,)},
        {"shape": (0,), "stride": (1 << 70,)},
        {"shape": (2, 2), "stride": (3, 1)},
        {"shape": (2, 2), "stride": (1,)},
        {"shape": (4,), "stride": (-1,)},
        {"shape": [4]},
        {"shape": (4.0,)},
        {"shape": "4"},
        {"stride": None},
        {"numel": 5},
        {"numel": -4},
        {"numel": "4"},
        {"numel": 1 << 61, "shape": (1 << 60,)},
        {"storage": b"\0" * 15},
        {"dtype": "Double"},
        {"dtype": "ComplexFloat"},
    ],
)
def test_tensors_that_do_not_fit_their_storage_are_not_read(tmp_path, hostile):
    (tensor,) = content_of(written(tmp_path, *rebuilt(**hostile)))
    assert isinstance(tensor, StandIn)
    (tensor,) = content_of(written(tmp_path, *rebuilt()))
    assert isinstance(tensor, StoredTensor)


@pytest.mark.parametrize(
    "args",
    [
        b")",
        b"(NNNt",
        b"(" + text("storage") + b"K\x00))t",
        b"(" + b"(" + text("storage") + text("x") + text("0") + b"NK\x04tK\x00))t",
        b"(" + b"(" + text("storage") + glob("os.system") + text("0") + b"NK\x04tK\x00))t",
    ],
)
def test_tensors_of_other_arguments_are_not_read(tmp_path, args):
    program = glob("torch._utils._rebuild_tensor_v2") + args + b"R."
    assert isinstance(content_of(written(tmp_path, program)), StandIn)


def test_other_formats_are_refused(tmp_path):
    path = tmp_path / "file.ckpt"
    expected = r"file\.ckpt: expected a checkpoint in torch's zip format"
    for write in (
        lambda: torch.save({}, path, _use_new_zipfile_serialization=False),
        lambda: path.write_bytes(pickle.dumps({})),
        lambda: path.write_bytes(b""),
        lambda: path.write_text("version https://git-lfs.github.com/spec/v1"),
    ):
        write()
        with pytest.raises(ValueError, match=expected):
            content_of(path)


def test_other_zip_files_are_refused(tmp_path):
    path = tmp_path / "file.ckpt"
    for name, compression in (("a.txt", zipfile.ZIP_STORED), ("a/data.pkl", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr(name, pickle.dumps({}))
        with pytest.raises(ValueError, match=r"file\.ckpt: .* got another zip file"):
            content_of(path)


class Script(torch.nn.Module):
    """Says so when its file is loaded by ``torch.jit.load``, as ``torch.load`` does."""

    def forward(self, x: torch.Tensor):
        return x

    @torch.jit.export
    def __getstate__(self):
        return self.training

    @torch.jit.export
    def __setstate__(self, training: bool):
        self.training = training
        print("ran")


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripts_are_refused_and_do_not_run(tmp_path, capfd):
    path = tmp_path / "file.ckpt"
    torch.jit.save(torch.jit.script(Script()), path)
    with pytest.raises(ValueError, match=r"file\.ckpt: .* got another zip file"):
        content_of(path)
    assert capfd.readouterr().out == ""
    torch.jit.load(path)  # the control
    assert capfd.readouterr().out == "ran\n"


def test_damaged_files_are_refused_by_name(tmp_path):
    """Cut or change a byte anywhere: the right content, or an error that names the file."""
    tensor = torch.arange(64.0)
    whole = saved(tmp_path, {"state_dict": {"w": tensor}}).read_bytes()
    damaged = tmp_path / "damaged.ckpt"
    rng = np.random.default_rng(0)
    cases = [whole[:size] for size in range(0, len(whole), 37)]
    for position in rng.integers(len(whole), size=400):
        changed = bytearray(whole)
        changed[position] ^= rng.integers(1, 256)
        cases.append(bytes(changed))
    errors = []
    for data in cases:
        damaged.write_bytes(data)
        try:
            with open_archive(damaged) as archive:
                content = archive.content
                if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
                    values = content["state_dict"].values()
                    stored = [v.read() for v in values if isinstance(v, StoredTensor)]
                    assert all(torch.equal(v, tensor) for v in stored)
        except ValueError as error:
            errors.append(str(error))
    assert len(errors) > len(cases) / 4
    assert all("damaged.ckpt" in error for error in errors)


def test_plain_pickles_need_no_archive():
    assert read_pickle(pickle.dumps({"a": (1, [2.5, None], {3})})) == {"a": (1, [2.5, None], {3})}
    with pytest.raises(ValueError, match="corrupt pickle"):
        read_pickle(b"not a pickle")
