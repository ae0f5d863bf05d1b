"""python -m tube_lightning.doctor: what it says, what it hides, and when it fails."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import hydra
import pytest
import torch
from hydra.utils import instantiate
from networks import random_model, random_tokens
from rich.console import Console

from tube_lightning.doctor import __main__ as doctor
from tube_lightning.doctor import diagnosis, rates
from tube_lightning.doctor.devices import choose_device
from tube_lightning.doctor.expected import (
    BATCH_SIZE,
    BLOCK_SIZES,
    LENGTH,
    NUM_BATCHES,
    count_rows,
    expect,
    paper_protocol,
)
from tube_lightning.doctor.findings import Finding, NotMeasuredError, attempt, clean
from tube_lightning.doctor.machine import advise
from tube_lightning.doctor.parity import TOLERANCE, Parity, PathParity, RegimeParity
from tube_lightning.doctor.screen import show
from tube_lightning.doctor.services import ask_hub, look_for_slurm, look_for_wandb
from tube_lightning.doctor.speed import PUBLISHED, NetworkSpeed, linear_flop, middle_rows
from tube_lightning.evaluator import Plan, score_batch
from tube_lightning.networks import plan_grouped
from tube_lightning.orderings import block_roles

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")
CHECKS = ["versions", "machine", "accelerators", "matmul", "parity", "speed", "expected"]
CHECKS += ["slurm", "hub", "wandb"]
REGIMES = ["NFE = 1", "NFE = 2", "NFE = 4", "AO-ARM", "2 chunks"]
SECRETS = {"WANDB_API_KEY": "0123456789abcdef-key", "HF_TOKEN": "hf_do_not_show_me"}


@pytest.fixture
def silent_server():
    """A server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://somebody:password@127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def hub_at(monkeypatch):
    def point(address):
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")

    return point


def run(*options, **environment):
    """The program, its exit code, and what it said."""
    command = [sys.executable, "-m", "tube_lightning.doctor", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def check_json(text, device="cpu"):
    """The schema: names, states and kinds of all that an issue's reader relies on."""
    told = json.loads(text)
    assert list(told) == ["schema", "passed", "device", "seconds", "checks"]
    assert (told["schema"], told["device"]) == (1, device)
    assert list(told["checks"]) == CHECKS
    for finding in told["checks"].values():
        assert list(finding) == ["status", "value", "reason"]
        assert finding["status"] in ("ok", "failed", "skipped")
        assert (finding["reason"] is None) == (finding["status"] == "ok")
        assert "\n" not in (finding["reason"] or "")
    for path in told["checks"]["parity"]["value"]["paths"]:
        assert [regime["regime"] for regime in path["regimes"]] in (REGIMES, [])
    return told


def test_json_of_a_real_run(silent_server):
    """In an environment with secrets, and a hub that never answers."""
    hub = {"HF_HUB_OFFLINE": "", "HF_ENDPOINT": silent_server, "no_proxy": "127.0.0.1"}
    ran = run("--json", "--quick", "--device", "cpu", **SECRETS, **hub)
    assert ran.returncode == 0, ran.stderr
    told = check_json(ran.stdout)
    assert told["passed"] is True
    checks = told["checks"]
    assert checks["versions"]["value"]["packages"]["torch"] == torch.__version__
    assert checks["machine"]["value"]["torch_threads"] >= 1
    for path in checks["parity"]["value"]["paths"]:
        for regime in path["regimes"]:
            assert 0 < max(regime["exact"], regime["sampled"]) < 1e-4
    assert [checks[name]["status"] for name in ("matmul", "speed", "expected")] == ["skipped"] * 3
    assert checks["hub"]["status"] == "failed"
    assert checks["hub"]["reason"] == "127.0.0.1: no answer in 3 s"
    assert checks["wandb"]["value"]["login"] is True
    for secret in (*SECRETS.values(), "somebody", "password", str(Path.home())):
        assert secret not in ran.stdout + ran.stderr


def test_text_fits_on_a_screen(capsys):
    assert doctor.main(["--quick", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    for word in (*REGIMES, "plan_grouped", f"torch {torch.__version__}", "offline by", "quota"):
        assert word in text
    assert "cpu computes what the CPU does" in lines[-1]


def test_as_many_paths_as_cuda_has_fit_as_well(capsys):
    """What a GPU's screen would show, from values that are made up."""
    values = tuple(RegimeParity(regime, 1e-5, 2e-5) for regime in REGIMES)
    paths = [
        PathParity(path, f"plan_{path}", dtype, TOLERANCE[dtype], values)
        for dtype in TOLERANCE
        for path in ("default", "grouped")
    ]
    paths[2] = replace(paths[2], regimes=(), reason="no kernel")
    parity = Parity(64, tuple(paths), 0.0, ("the kernel gave way",))
    assert parity.complaint() == "default attention (plan_default, bfloat16): no kernel"
    quiet = diagnosis.diagnose(CPU, lambda _: None, quick=True)
    checks = replace(quiet.checks, parity=Finding("failed", parity, parity.complaint()))
    show(Console(width=100), replace(quiet, checks=checks))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    [row] = [line for line in out.splitlines() if "AO-ARM" in line]
    assert row.split() == ["AO-ARM", *["1.0e-05", "2.0e-05"] * 2, "none", "1.0e-05", "2.0e-05"]
    assert "the kernel gave way" in out


@pytest.mark.slow
def test_a_whole_run_ends_within_a_minute():
    start = time.perf_counter()
    ran = run("--json", "--device", "cpu")
    assert time.perf_counter() - start < 60
    assert ran.returncode == 0, ran.stderr
    checks = check_json(ran.stdout)["checks"]
    assert [rate["dtype"] for rate in checks["matmul"]["value"]] == ["fp32", "tf32", "bf16"]
    fp32, tf32, bf16 = checks["matmul"]["value"]
    assert fp32["flop_per_second"] > 1e9
    assert tf32["reason"] == "CUDA only"
    assert (bf16["flop_per_second"] is None) == (bf16["reason"] is not None)
    embedded, published = checks["speed"]["value"]
    assert embedded["rows_per_second"] > 10 * published["rows_per_second"] > 0
    seconds = [one["seconds"] for one in checks["expected"]["value"]]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    text = run("--device", "cpu").stdout
    assert "owt_l16, fp32: expected" in text
    assert len(text.splitlines()) <= 45


def plan_one_token_short(rows, clean_length):
    """Attention that does not see the token right before the block."""
    short = replace(rows, start=(rows.start - 1).clamp(min=0))
    return plan_grouped(short, clean_length)


def plan_that_fails(rows, clean_length):
    raise RuntimeError("no kernel image\nis available in /home/somebody/cache")


def test_wrong_attention_is_found(monkeypatch, capsys):
    """The model chooses its attention itself, as in an evaluation; what it gets is wrong."""
    where = "tube_lightning.networks.block_diffusion.default_attention"
    monkeypatch.setattr(where, lambda device: plan_one_token_short)
    assert doctor.main(["--quick", "--device", "cpu", "--json"]) == 1
    told = check_json(capsys.readouterr().out)
    assert told["passed"] is False
    parity = told["checks"]["parity"]
    assert parity["status"] == "failed"
    assert "default attention" in parity["reason"]
    assert "nats off, expected 0.001" in parity["reason"]
    default, grouped = parity["value"]["paths"]
    for regime in default["regimes"]:
        assert min(regime["exact"], regime["sampled"]) > 0.01
    for regime in grouped["regimes"]:
        assert max(regime["exact"], regime["sampled"]) < 1e-4


def test_attention_that_cannot_run_is_told_in_a_line(monkeypatch, capsys):
    where = "tube_lightning.networks.block_diffusion.default_attention"
    monkeypatch.setattr(where, lambda device: plan_that_fails)
    assert doctor.main(["--quick", "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert "RuntimeError: no kernel image is available in /home/***/cache" in " ".join(out.split())
    assert "Traceback" not in out
    assert "do not use it" in out


def test_a_perturbed_network_is_found(monkeypatch, capsys):
    """What moves to the device is not what was loaded: one weight of one layer is another."""
    from tube_lightning.networks.trunk import FrozenTrunk

    move = FrozenTrunk._apply

    def move_wrongly(self, fn, recurse=True):
        moved = move(self, fn, recurse)
        trunk = moved.constants
        first = replace(trunk.layers[0], out=trunk.layers[0].out * 1.01)
        moved.constants = replace(trunk, layers=(first, *trunk.layers[1:]))
        return moved

    calls = []

    def move_once_rightly(self, *args, **kwargs):
        calls.append(self)  # the reference's two networks come first
        return (move if len(calls) <= 2 else move_wrongly)(self, *args, **kwargs)

    monkeypatch.setattr(FrozenTrunk, "_apply", move_once_rightly)
    assert doctor.main(["--quick", "--device", "cpu", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"]["parity"]["status"] == "failed"
    assert len(calls) == 6


@pytest.mark.parametrize("name", ["tpu", "cuda:-1", "cuda:x", "cpu:7", "cuda:99", "mps:3", ""])
def test_unknown_devices_are_named(name, capsys):
    assert doctor.main(["--device", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: --device: expected ")
    assert captured.err.endswith(f"got {name!r}\n")
    assert captured.err.count("\n") == 1


def test_devices_that_are_there():
    assert choose_device("cpu") == CPU
    assert choose_device(None).type in ("cpu", "cuda", "mps")


def test_advice_is_for_machines_that_need_it():
    assert advise(2, 2.0, 2, 0.5) is None
    assert advise(1, 0.5, 4, None) is None
    assert advise(2, 1.5, 4, 0.0).endswith("set OMP_NUM_THREADS=1")
    assert advise(2, 2.0, 2, 1.6).startswith("load 1.6 on 2 CPUs: others are busy")


def test_a_hub_that_never_answers_takes_no_longer_than_it_may(silent_server, hub_at):
    hub_at(silent_server)
    start = time.perf_counter()
    with pytest.raises(TimeoutError, match=r"^127\.0\.0\.1: "):
        ask_hub(seconds=0.3)
    assert time.perf_counter() - start < 2


def test_a_hub_that_drips_takes_no_longer_than_it_may(hub_at):
    """Every byte is in time for the socket; all of them are not."""

    def drip():
        with server.accept()[0] as connection:
            for _ in range(8):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip)
        thread.start()
        hub_at(f"http://127.0.0.1:{server.getsockname()[1]}")
        start = time.perf_counter()
        with pytest.raises(TimeoutError, match=r"no answer in 0\.3 s"):
            ask_hub(seconds=0.3)
        assert time.perf_counter() - start < 1.5
        thread.join()


def test_a_hub_that_is_not_there(hub_at):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    hub_at(f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionError, match=r"^127\.0\.0\.1: .*refused"):
        ask_hub(seconds=2.0)


@pytest.mark.parametrize("status", [200, 403])
def test_a_hub_that_answers(hub_at, status, monkeypatch):
    def answer():
        with server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())

    monkeypatch.setenv("HF_TOKEN", SECRETS["HF_TOKEN"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        hub_at(f"http://127.0.0.1:{server.getsockname()[1]}")
        found = ask_hub(seconds=5.0)
        thread.join()
    assert (found.host, found.http_status, found.token) == ("127.0.0.1", status, True)


def test_offline_is_not_asked(monkeypatch, silent_server):
    monkeypatch.setenv("HF_ENDPOINT", silent_server)
    with pytest.raises(NotMeasuredError, match="offline by HF_HUB_OFFLINE"):
        ask_hub(seconds=0.1)


def test_wandb_logins(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    found = look_for_wandb()
    assert (found.mode, found.login) == ("online", False)
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password hidden\n")
    (tmp_path / "netrc").chmod(0o600)
    assert look_for_wandb().login is True
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert look_for_wandb().mode == "offline"


def test_slurm_jobs(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert look_for_slurm().in_job is False
    for name, value in {"JOB_ID": "7", "NTASKS": "8", "NNODES": "2", "CPUS_PER_TASK": "x"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    found = look_for_slurm()
    assert (found.in_job, found.tasks, found.nodes, found.cpus_per_task) == (True, 8, 2, None)


def test_checks_that_fail_are_told_without_secrets(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "opensesame")

    def check():
        raise OSError("https://me:word@host/x\n  opensesame is in /Users/somebody/keys")

    found = attempt(check)
    assert (found.status, found.value) == ("failed", None)
    assert found.reason == "https://host/x *** is in /Users/***/keys"


def test_numbers_that_json_lacks_are_words():
    assert clean({"a": [float("nan"), float("inf"), 1.5]}) == {"a": ["nan", "inf", 1.5]}


def test_a_product_that_ends_its_process_is_survived(monkeypatch):
    """The process is real, and is killed as an unknown instruction would."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    real = subprocess.run
    monkeypatch.setattr(
        rates.subprocess, "run", lambda _, **options: real([sys.executable, "-c", code], **options)
    )
    monkeypatch.setattr(rates, "_SECONDS", 0.01)
    fp32, tf32, bf16 = rates.measure_rates(CPU)
    assert fp32.flop_per_second > 0
    assert tf32.reason == "CUDA only"
    assert bf16.flop_per_second is None
    assert bf16.reason.startswith("the process died of SIGILL")


@pytest.mark.parametrize("name", BLOCK_SIZES)
def test_expected_experiments_are_those_of_the_files(name):
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = hydra.compose("evaluate", [f"experiment={name}"])
    found = (config.batch_size, config.num_batches, config.length)
    assert found == (BATCH_SIZE, NUM_BATCHES, LENGTH)
    assert config.model.checkpoint.endswith(f"block_size{BLOCK_SIZES[name]}")
    size = BLOCK_SIZES[name]
    assert Plan(instantiate(config.protocol), size).identity() == (
        Plan(paper_protocol(name), size).identity()
    )


@pytest.mark.parametrize("name", BLOCK_SIZES)
def test_rows_are_counted_as_an_evaluation_runs_them(name, monkeypatch):
    size = BLOCK_SIZES[name]
    model = random_model(size, length=2 * size)
    seen = []
    log_probs = type(model).log_probs

    def counting(self, context, rows):
        here = rows.start == size  # the first block has a token that is given
        seen.append((here.sum().item(), rows.needed[here].sum().item()))
        return log_probs(self, context, rows)

    monkeypatch.setattr(type(model), "log_probs", counting)
    roles = block_roles(2 * size, size)[None]
    plan = Plan(paper_protocol(name), size)
    score_batch(model, {}, random_tokens(1, 2 * size), roles, [0], plan)
    rows, needed = (sum(part) for part in zip(*seen, strict=True))
    expected_rows, expected_needed = count_rows(name)
    seeds = 0 if plan.exact else plan.protocol.elbo_seeds  # some of these hide nothing
    assert expected_rows - seeds <= rows <= expected_rows
    assert abs(needed - expected_needed) <= seeds * size / 2


def test_expectations_follow_from_the_rate():
    """The estimate of docs/EXPERIMENTS.md: 4 min, 65 min, 6.7 h at 67 TFLOP/s x 0.4."""
    speed = NetworkSpeed("published size", "float32", 1, 1.0, 1.0, 67e12 * 0.4, None)
    found = {one.experiment: one for one in expect([speed], CPU)}
    minutes = {name: one.seconds / 60 for name, one in found.items()}
    assert 3 < minutes["owt_l4"] < 4.5
    assert 45 < minutes["owt_l8"] < 70
    assert 230 < minutes["owt_l16"] < 420
    twice = expect([replace(speed, flop_per_second=67e12 * 0.8)], CPU)
    assert [2 * one.seconds for one in twice] == [one.seconds for one in found.values()]
    weights = 2 * (12 * 12 * 768**2 + 2 * 50_258 * 768) * 4
    assert all(weights < one.memory_bytes < weights + (1 << 30) for one in found.values())
    half = expect([replace(speed, dtype="bfloat16")], CPU)
    assert all(a.memory_bytes < b.memory_bytes for a, b in zip(half, found.values(), strict=True))


def test_timed_rows_are_in_the_middle_of_the_text():
    for num_blocks in (17, 1024):
        tokens, sets = middle_rows(PUBLISHED, num_blocks)
        assert len(sets.block) == num_blocks * 15
        assert tokens.shape == (-(-num_blocks // 256), 1024)
        assert (sets.block % 256).double().mean().item() == pytest.approx(127.5, abs=0.5)


def test_operations_are_counted():
    config = replace(PUBLISHED, hidden_dim=2, n_heads=1, n_blocks=1, vocab_size=5, mask_id=-1)
    assert linear_flop(config, clean=0, noisy=1, needed=1) == 2 * (12 * 2**2 + 2 * 5)
