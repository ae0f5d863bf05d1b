"""Threads of torch: as many as this process was granted, and asleep while they wait.

Threads that spin while they wait for each other take the CPU from those they wait for, as soon as
there are more of them than CPUs: beside other busy processes, in containers, on shared nodes.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from tube_lightning.machine.quota import count_cores, least, read_quota, usable_cpus

NUM_THREADS = "OMP_NUM_THREADS"
_CHOICES_OF_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_CHOICES_OF_NUMBER = (NUM_THREADS, "MKL_NUM_THREADS")


def wait_asleep() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user chose how they do.

    OpenMP reads this once, when torch is imported: call it before.
    """
    if not any(name in os.environ for name in _CHOICES_OF_WAITING):
        os.environ["OMP_WAIT_POLICY"] = "passive"


def use_granted_threads(num_processes: int = 1) -> None:
    """Run as many threads as this process was granted, one of ``num_processes`` on this node.

    Processes that this one starts inherit the number. A number that the user chose
    (OMP_NUM_THREADS, MKL_NUM_THREADS) stays. Call it before torch computes anything.
    """
    import torch  # what stages above have no need of

    if any(name in os.environ for name in _CHOICES_OF_NUMBER) and not _is_torchrun_s_number():
        return
    threads = granted_threads(num_processes)
    if threads is None:
        threads = max(1, torch.get_num_threads() // num_processes)
    os.environ[NUM_THREADS] = str(threads)
    torch.set_num_threads(threads)


def granted_threads(
    num_processes: int = 1, environment: Mapping[str, str] = os.environ
) -> int | None:
    """Divide what this node grants by its processes; None where nothing is known of it (macOS).

    Limits are the cores of the CPUs in the affinity, the quota of the control groups, and under
    SLURM the CPUs of the job on this node and of a task. SLURM may bind every task to CPUs of its
    own: there the affinity is this process's alone, elsewhere that of all.
    """
    allowed, on_node = usable_cpus(), _number(environment, "SLURM_CPUS_ON_NODE")
    cores = None if allowed is None else float(count_cores(allowed))
    shared = least(_quota(), on_node, None if on_node else cores)
    own = least(_number(environment, "SLURM_CPUS_PER_TASK"), cores)
    granted = least(own, None if shared is None else shared / num_processes)
    return None if granted is None else max(1, int(granted))


def _quota() -> float | None:
    try:
        return read_quota().cpus
    except (OSError, ValueError):  # control groups that we cannot read are none: the doctor tells
        return None


def _number(environment: Mapping[str, str], name: str) -> float | None:
    return float(environment[name]) if environment.get(name, "").isdecimal() else None


def _is_torchrun_s_number() -> bool:
    """Tell whether torchrun set one thread because nobody had chosen: it started without."""
    started_with = Path(f"/proc/{os.getppid()}/environ")
    if "TORCHELASTIC_RUN_ID" not in os.environ or not started_with.is_file():
        return False
    names = {entry.split(b"=", 1)[0] for entry in started_with.read_bytes().split(b"\0")}
    return not names & {name.encode() for name in _CHOICES_OF_NUMBER}
