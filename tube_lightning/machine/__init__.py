"""What this process was granted of the machine: CPUs, memory, threads. Imported before torch."""

from tube_lightning.machine.quota import (
    Quota,
    count_cores,
    least,
    read_memory,
    read_quota,
    usable_cpus,
)
from tube_lightning.machine.threads import granted_threads, use_granted_threads, wait_asleep

__all__ = [
    "Quota",
    "count_cores",
    "granted_threads",
    "least",
    "read_memory",
    "read_quota",
    "usable_cpus",
    "use_granted_threads",
    "wait_asleep",
]
