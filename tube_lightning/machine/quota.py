"""How much of the machine this process may use: control groups, affinity, memory. No torch here."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

N = TypeVar("N", int, float)

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")
CPUS = Path("/sys/devices/system/cpu")
_NO_MEMORY_LIMIT = 1 << 60
"""Version 1 writes a number of this order where there is no limit."""


@dataclass(frozen=True)
class Quota:
    """What control groups (of Linux, version 1 or 2) leave to this process; None = no limit."""

    cpus: float | None
    memory_bytes: int | None


def usable_cpus() -> set[int] | None:
    """Return the CPUs that this process may run on; None where there is no affinity (macOS)."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def count_cores(cpus: Iterable[int], folder: Path = CPUS) -> int:
    """Count cores: CPUs that share one (hyper-threads) are no more than it is."""
    cores = set()
    for cpu in cpus:
        siblings = folder / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores.add(siblings.read_text().strip() if siblings.is_file() else str(cpu))
    return len(cores)


def read_memory(file: Path = MEMORY) -> dict[str, int]:
    """Read sizes in bytes by name; none where there is no such file (macOS)."""
    if not file.exists():
        return {}
    parts = (line.split() for line in file.read_text().splitlines())
    return {p[0].rstrip(":"): int(p[1]) * 1024 for p in parts if len(p) == 3 and p[2] == "kB"}


def read_quota(groups: Path = GROUPS, membership: Path = MEMBERSHIP) -> Quota:
    """Read the limits of the control groups that hold this process, all the way up."""
    cpus: list[float | None] = []
    memory: list[int | None] = []
    for controllers, folder in _own_groups(groups, membership):
        if "cpu" in controllers:
            cpus += [_read(folder / "cpu.max", _cpus_v2), _cpus_v1(folder)]
        if "memory" in controllers:
            memory.append(_read(folder / "memory.max", _memory))
            memory.append(_read(folder / "memory.limit_in_bytes", _memory))
    return Quota(least(*cpus), least(*memory))


def _own_groups(groups: Path, membership: Path) -> Iterator[tuple[set[str], Path]]:
    """Yield controllers and folders. In a container the outer part of a path may not be there."""
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        _, names, path = line.split(":", 2)
        controllers = set(names.split(",")) if names else {"cpu", "memory"}
        mounts = [groups / names, *(groups / name for name in sorted(controllers))]
        mount = next((m for m in mounts if names and m.is_dir()), groups)
        inner = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(inner) + 1):
            yield controllers, mount.joinpath(*inner[:depth])


def _read(file: Path, parse: Callable[[str], N | None]) -> N | None:
    if not file.is_file():
        return None
    text = file.read_text().strip()
    try:
        return parse(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{file.name}: expected a limit, got {text!r}") from None


def _cpus_v2(text: str) -> float | None:
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)


def _cpus_v1(folder: Path) -> float | None:
    quota = _read(folder / "cpu.cfs_quota_us", int)
    period = _read(folder / "cpu.cfs_period_us", int)
    return quota / period if quota is not None and quota > 0 and period else None


def _memory(text: str) -> int | None:
    limit = None if text == "max" else int(text)
    return None if limit is None or limit >= _NO_MEMORY_LIMIT else limit


def least(*limits: N | None) -> N | None:
    """Return the smallest of the limits that there are."""
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
