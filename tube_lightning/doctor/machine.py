"""The machine as the doctor shows it: CPUs, memory, the threads that torch runs."""

import os
from dataclasses import dataclass

import torch

from tube_lightning.machine import least, read_memory, read_quota, usable_cpus

_HAS_LOAD = hasattr(os, "getloadavg")


@dataclass(frozen=True)
class Machine:
    """CPUs and memory that are ours, and the threads that torch runs."""

    cpus: int
    """of the machine"""
    affinity: int | None
    quota: float | None
    usable_cpus: float
    """the least of the three"""
    torch_threads: int
    memory_bytes: int | None
    """of the machine, or the limit of the control group"""
    available_bytes: int | None
    load: float | None
    """processes that wanted to run, over the last minute, before the doctor did"""
    advice: str | None


def look_at_machine() -> Machine:
    """Count what may be used."""
    quota = read_quota()
    memory = read_memory()
    cpus = os.cpu_count() or 1
    allowed = usable_cpus()
    affinity = None if allowed is None else len(allowed)
    usable = float(min(n for n in (cpus, affinity, quota.cpus) if n is not None))
    threads, load = torch.get_num_threads(), os.getloadavg()[0] if _HAS_LOAD else None
    return Machine(
        cpus,
        affinity,
        quota.cpus,
        usable,
        threads,
        memory_bytes=least(memory.get("MemTotal"), quota.memory_bytes),
        available_bytes=least(memory.get("MemAvailable"), quota.memory_bytes),
        load=load,
        advice=advise(threads, usable, cpus, load),
    )


def advise(threads: int, usable: float, cpus: int, load: float | None) -> str | None:
    """Say what makes a CPU slower than it need be: threads that wait, other processes.

    >>> advise(8, 2.0, 16, 0.1)
    '8 threads on 2 CPUs wait for each other: set OMP_NUM_THREADS=2'
    """
    whole = max(1, int(usable))
    if threads > whole:
        return (
            f"{threads} threads on {usable:g} CPUs wait for each other: set OMP_NUM_THREADS={whole}"
        )
    if load is not None and load > cpus / 2:
        return (
            f"load {load:.1f} on {cpus} CPUs: others are busy, speeds below are less than it can do"
        )
    return None
