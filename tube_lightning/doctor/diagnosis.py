"""All checks, one after the other."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import torch

from tube_lightning.doctor.devices import Accelerator, list_accelerators
from tube_lightning.doctor.expected import Expectation, expect
from tube_lightning.doctor.findings import Finding, NotMeasuredError, attempt, clean
from tube_lightning.doctor.machine import Machine, look_at_machine
from tube_lightning.doctor.parity import Parity, compare_with_cpu
from tube_lightning.doctor.rates import MatmulRate, measure_rates
from tube_lightning.doctor.services import (
    Hub,
    Slurm,
    WandbAccount,
    ask_hub,
    look_for_slurm,
    look_for_wandb,
)
from tube_lightning.doctor.speed import NetworkSpeed, measure_speeds
from tube_lightning.doctor.versions import Versions, find_versions

T = TypeVar("T")
SCHEMA = 1
"""Version of the JSON: another one where a name changes its meaning or goes."""


@dataclass(frozen=True)
class Checks:
    """What every check found, in the order in which they are shown."""

    versions: Finding[Versions]
    machine: Finding[Machine]
    accelerators: Finding[list[Accelerator]]
    matmul: Finding[list[MatmulRate]]
    parity: Finding[Parity]
    speed: Finding[list[NetworkSpeed]]
    expected: Finding[list[Expectation]]
    slurm: Finding[Slurm]
    hub: Finding[Hub]
    wandb: Finding[WandbAccount]


@dataclass(frozen=True)
class Diagnosis:
    """The checks of one device."""

    device: str
    seconds: float
    checks: Checks

    @property
    def passed(self) -> bool:
        """Whether the device computes what the CPU does."""
        return self.checks.parity.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can hold, without secrets."""
        checks = {field.name: getattr(self.checks, field.name) for field in fields(Checks)}
        found: dict[str, Any] = clean(
            {
                "schema": SCHEMA,
                "passed": self.passed,
                "device": self.device,
                "seconds": round(self.seconds, 1),
                "checks": {name: asdict(finding) for name, finding in checks.items()},
            }
        )
        return found


def diagnose(device: torch.device, say: Callable[[str], None], quick: bool = False) -> Diagnosis:
    """Run all checks; ``quick`` leaves out what takes time and says nothing about correctness."""
    start = time.perf_counter()

    def measure(what: str, check: Callable[[], T]) -> Finding[T]:
        if quick:
            return Finding("skipped", reason="left out by --quick")
        say(what)
        return attempt(check)

    versions, machine = attempt(find_versions), attempt(look_at_machine)
    accelerators = attempt(list_accelerators)
    say("asking the hub")
    hub = attempt(ask_hub)
    slurm, wandb = attempt(look_for_slurm), attempt(look_for_wandb)
    matmul = measure("timing matrix products", lambda: measure_rates(device))
    say(f"comparing {device} with the CPU, on the embedded models")
    parity = _judge(attempt(lambda: compare_with_cpu(device)))
    speed = measure("timing the embedded model", lambda: measure_speeds(device, say))
    checks = Checks(
        versions,
        machine,
        accelerators,
        matmul,
        parity,
        speed,
        expected=attempt(lambda: _expect_if_known(speed, device)),
        slurm=slurm,
        hub=hub,
        wandb=wandb,
    )
    return Diagnosis(str(device), time.perf_counter() - start, checks)


def _judge(parity: Finding[Parity]) -> Finding[Parity]:
    """Make a difference beyond rounding a failure, with its numbers."""
    complaint = parity.value.complaint() if parity.value else None
    return Finding("failed", parity.value, complaint) if complaint else parity


def _expect_if_known(speed: Finding[list[NetworkSpeed]], device: torch.device) -> list[Expectation]:
    if speed.value is None:
        raise NotMeasuredError("the speed is not known")
    return expect(speed.value, device)
