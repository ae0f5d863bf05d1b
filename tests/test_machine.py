"""What a process was granted of the machine: quotas, affinity, SLURM; and the threads it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tube_lightning import conditional_table, load_arm, load_block_model
from tube_lightning.machine import (
    Quota,
    count_cores,
    granted_threads,
    read_memory,
    read_quota,
    threads,
    usable_cpus,
)
from tube_lightning.orderings import block_roles

ROOT = Path(__file__).parent.parent
CHOICES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
PRINT_THREADS = (
    "import os; from tube_lightning.machine import use_granted_threads; use_granted_threads(); "
    "import torch; print(torch.get_num_threads(), os.environ.get('OMP_NUM_THREADS'))"
)


def told(code, cpus=None, **chosen):
    """Run code in a process of its own that has chosen nothing else; return its words."""
    environment = {k: v for k, v in os.environ.items() if k not in CHOICES} | chosen
    out = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus) if cpus else None,
    )
    return out.stdout.split()


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


V1 = "4:memory:/job\n3:cpu,cpuacct:/job/step\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, Quota(None, None)),
        ("0::/\n", {"cpu.max": "150000 100000\n", "memory.max": "4096\n"}, Quota(1.5, 4096)),
        (  # the narrowest of a group and those around it
            "0::/a/b\n",
            {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000", "a/b/memory.max": "7"},
            Quota(2.0, 7),
        ),
        ("0::/gone/../outside\n", {"cpu.max": "50000 100000"}, Quota(0.5, None)),
        (
            V1,
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "300000\n",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/job/step/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/job/step/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/job/memory.limit_in_bytes": "1024\n",
            },
            Quota(3.0, 1024),
        ),
        (  # the controllers of version 1 under names of their own
            V1,
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            Quota(None, None),
        ),
        ("", {}, Quota(None, None)),
    ],
)
def test_quotas_of_control_groups(tmp_path, membership, files, expected):
    write(tmp_path / "groups", files)
    write(tmp_path, {"membership": membership})
    assert read_quota(tmp_path / "groups", tmp_path / "membership") == expected


def test_quotas_where_there_are_no_control_groups(tmp_path):
    assert read_quota(tmp_path / "none", tmp_path / "nothing") == Quota(None, None)
    assert read_memory(tmp_path / "nothing") == {}


def test_a_limit_that_is_none_is_named(tmp_path):
    write(tmp_path, {"membership": "0::/\n", "cpu.max": "lots 100000"})
    with pytest.raises(ValueError, match=r"cpu.max: expected a limit, got 'lots 100000'"):
        read_quota(tmp_path, tmp_path / "membership")


def test_memory_is_read_in_bytes(tmp_path):
    write(tmp_path, {"meminfo": "MemTotal:  100 kB\nMemAvailable:   40 kB\nHugePages_Total: 0\n"})
    assert read_memory(tmp_path / "meminfo") == {"MemTotal": 102_400, "MemAvailable": 40_960}


def test_cpus_of_one_core_count_once(tmp_path):
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    for cpu, text in siblings.items():
        write(tmp_path, {f"cpu{cpu}/topology/thread_siblings_list": f"{text}\n"})
    assert count_cores({0, 1, 2, 3}, tmp_path) == 2
    assert count_cores({0, 2}, tmp_path) == 1
    assert count_cores({0, 9}, tmp_path) == 2  # of the last nothing is known


@pytest.mark.parametrize(
    ("cpus", "quota", "slurm", "num_processes", "expected"),
    [
        (16, None, {}, 1, 16),
        (16, None, {}, 3, 5),
        (16, 2.5, {}, 1, 2),
        (16, 6.0, {}, 2, 3),
        (4, None, {}, 8, 1),
        (None, None, {}, 4, None),
        (None, 8.0, {}, 4, 2),
        (64, None, {"SLURM_CPUS_ON_NODE": "8"}, 2, 4),
        (64, None, {"SLURM_CPUS_ON_NODE": "64", "SLURM_CPUS_PER_TASK": "3"}, 2, 3),
        (4, None, {"SLURM_CPUS_ON_NODE": "8"}, 2, 4),  # a task bound to CPUs of its own
        (64, 4.0, {"SLURM_CPUS_ON_NODE": "64", "SLURM_CPUS_PER_TASK": "16"}, 4, 1),
        (4, None, {"SLURM_CPUS_ON_NODE": "nonsense"}, 1, 4),
    ],
)
def test_threads_are_what_is_granted(monkeypatch, cpus, quota, slurm, num_processes, expected):
    monkeypatch.setattr(threads, "usable_cpus", lambda: None if cpus is None else set(range(cpus)))
    monkeypatch.setattr(threads, "count_cores", len)
    monkeypatch.setattr(threads, "read_quota", lambda: Quota(quota, None))
    assert granted_threads(num_processes, slurm) == expected


def test_control_groups_that_cannot_be_read_are_none(monkeypatch):
    def refuse():
        raise ValueError("cpu.max: expected a limit, got 'lots'")

    monkeypatch.setattr(threads, "read_quota", refuse)
    assert granted_threads(1, {}) >= 1


def test_waiting_threads_sleep_unless_the_user_chose_otherwise():
    code = "import os, tube_lightning; print(os.environ.get('OMP_WAIT_POLICY'))"
    assert told(code) == ["passive"]
    assert told(code, OMP_WAIT_POLICY="active") == ["active"]
    assert told(code, GOMP_SPINCOUNT="1000") == ["None"]


def test_threads_follow_the_affinity_unless_the_user_chose_otherwise():
    cpus = usable_cpus()
    assert told(PRINT_THREADS, cpus={min(cpus)}) == ["1", "1"]
    assert told(PRINT_THREADS, OMP_NUM_THREADS="1") == ["1", "1"]
    assert told(PRINT_THREADS, MKL_NUM_THREADS="1") == ["1", "None"]


@pytest.mark.slow
def test_the_one_thread_of_torchrun_is_nobodys_choice(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PRINT_THREADS)
    run = f"import runpy, sys; sys.argv = ['torchrun', '--nproc-per-node=2', {str(script)!r}]; "
    run += "runpy.run_module('torch.distributed.run', run_name='__main__')"
    cores = str(count_cores(usable_cpus()))
    assert told(run, PYTHONPATH=str(ROOT)) == [cores] * 4
    assert told(run, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1") == ["1"] * 4


def test_scores_do_not_depend_on_the_number_of_threads():
    """Processes that share a node run fewer threads: results are the same, to the bit."""
    model, arm = load_block_model("demo:bd3lm_l4"), load_arm("demo:arm")
    tokens = torch.randint(1000, [3, 128], generator=torch.Generator().manual_seed(0))
    roles = block_roles(length=128, block_size=4)
    before, found = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(
                (conditional_table(model, tokens, roles=roles), arm.token_log_probs(tokens))
            )
    finally:
        torch.set_num_threads(before)
    for table, log_probs in found[1:]:
        assert table.equal(found[0][0])
        assert log_probs.equal(found[0][1])
