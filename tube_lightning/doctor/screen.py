"""One screen: a line or a few for each check."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tube_lightning.doctor.devices import Accelerator
from tube_lightning.doctor.diagnosis import Diagnosis
from tube_lightning.doctor.expected import Expectation
from tube_lightning.doctor.findings import Finding, Status, clean
from tube_lightning.doctor.machine import Machine
from tube_lightning.doctor.parity import TOLERANCE, Parity
from tube_lightning.doctor.rates import MatmulRate
from tube_lightning.doctor.services import Hub, Slurm, WandbAccount
from tube_lightning.doctor.speed import NetworkSpeed
from tube_lightning.doctor.versions import Versions

T = TypeVar("T")
_MARKS: dict[Status, str] = {"ok": " ", "failed": "[red]✗[/]", "skipped": "[dim]-[/]"}
_SHORT = {"float32": "fp32", "bfloat16": "bf16"}
_UNITS = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0))


def show(console: Console, diagnosis: Diagnosis) -> None:
    """Print what was found."""
    checks = diagnosis.checks
    lines = Table.grid(padding=(0, 1))
    for _ in range(2):
        lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")

    def add(name: str, finding: Finding[T], describe: Callable[[T], RenderableType]) -> None:
        parts: list[RenderableType] = []
        if finding.reason is not None:
            color = "red" if finding.status == "failed" else "dim"
            parts.append(f"[{color}]{escape(finding.reason)}[/]")
        if finding.value is not None:
            parts.append(describe(finding.value))
        lines.add_row(_MARKS[finding.status], f"[bold]{name}[/]", Group(*parts))

    add("versions", checks.versions, _describe_versions)
    add("cpu", checks.machine, _describe_machine)
    add("devices", checks.accelerators, _describe_accelerators)
    add("slurm", checks.slurm, _describe_slurm)
    add("hub", checks.hub, _describe_hub)
    add("W&B", checks.wandb, _describe_wandb)
    add("matmul", checks.matmul, _describe_rates)
    add("parity", checks.parity, _describe_parity)
    add("speed", checks.speed, _describe_speeds)
    add("expected", checks.expected, _describe_expectations)
    console.print(f"[bold]tube_lightning doctor[/]: [bold]{diagnosis.device}[/]")
    console.print(lines)
    verdict = (
        f"[green]✓[/] {diagnosis.device} computes what the CPU does"
        if diagnosis.passed
        else f"[red]✗ {diagnosis.device} does not compute what the CPU does: do not use it[/]"
    )
    console.print(f"{verdict} ({diagnosis.seconds:.0f} s). For an issue: add --json, paste it.")


def gibibytes(number: int | None) -> str:
    """Write a size.

    >>> gibibytes(3 << 29), gibibytes(None)
    ('1.5 GiB', '?')
    """
    return "?" if number is None else f"{number / 2**30:.1f} GiB"


def duration(seconds: float) -> str:
    """Write a time with the unit that suits it.

    >>> duration(42.2), duration(240.0), duration(24_000.0), duration(400_000.0)
    ('42 s', '4.0 min', '6.7 h', '4.6 days')
    """
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def flop_rate(rate: float) -> str:
    """Write a rate of floating-point operations.

    >>> flop_rate(1.13e11), flop_rate(6.7e13)
    ('113 GFLOP/s', '67.0 TFLOP/s')
    """
    return f"{rate / 1e12:.1f} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.0f} GFLOP/s"


def _describe_versions(found: Versions) -> Text:
    ours = found.packages["tube-lightning"] or "not installed"
    commit = f" ({found.commit})" if found.commit else ""
    parts = [f"tube-lightning {ours}{commit}", f"python {found.python}", found.system]
    parts.append(f"CUDA {found.cuda or 'none'}" + (f", cuDNN {found.cudnn}" if found.cudnn else ""))
    others = ((name, v) for name, v in found.packages.items() if name != "tube-lightning")
    parts += [f"{name} {version or 'none'}" for name, version in others]
    return Text(clean(", ".join(parts)))


def _describe_machine(found: Machine) -> str:
    quota = "none" if found.quota is None else f"{found.quota:g}"
    text = (
        f"{found.usable_cpus:g} CPUs usable (of {found.cpus}; affinity {found.affinity or '?'}, "
        f"quota {quota}), torch threads {found.torch_threads}; "
        f"memory {gibibytes(found.memory_bytes)}, {gibibytes(found.available_bytes)} free"
    )
    return text + (f"\n[yellow]{escape(found.advice)}[/]" if found.advice else "")


def _describe_accelerators(found: list[Accelerator]) -> str:
    return (
        "\n".join(
            f"{one.device}: {escape(one.name)}, {gibibytes(one.memory_bytes)}, "
            f"{gibibytes(one.free_bytes)} free"
            + (f", {one.architecture}, {one.processors} processors" if one.architecture else "")
            for one in found
        )
        or "no accelerator that torch sees"
    )


def _describe_rates(found: list[MatmulRate]) -> str:
    return "; ".join(
        f"{one.dtype} "
        + (flop_rate(one.flop_per_second) if one.flop_per_second else "none")
        + (f" ({escape(one.reason)})" if one.reason else "")
        for one in found
    )


def _describe_parity(found: Parity) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in found.paths:
        table.add_column(justify="right", no_wrap=True)
    names = (f"{path.path} {_SHORT[path.dtype]}" for path in found.paths)
    table.add_row("", *(f"[dim]{name}[/]" for name in names))
    titles = next((path.regimes for path in found.paths if path.regimes), ())
    for number, title in enumerate(titles):
        of_paths = (path.regimes[number] if path.regimes else None for path in found.paths)
        cells = (f"{one.exact:.1e} {one.sampled:.1e}" if one else "none" for one in of_paths)
        table.add_row(title.regime, *cells)
    kinds = ", ".join(dict.fromkeys(f"{path.path} is {path.attention}" for path in found.paths))
    text = (
        f"nats a block, exact and sampled, at most off a plain loop on the CPU; {kinds}; "
        f"ARM {found.arm:.1e}; {found.blocks} blocks; "
        f"allowed {', '.join(f'{most:g} in {_SHORT[dtype]}' for dtype, most in _allowed(found))}"
    )
    notes = [f"[yellow]{escape(warning)}[/]" for warning in found.warnings]
    return Group(table, escape(text), *notes)


def _allowed(found: Parity) -> Iterator[tuple[str, float]]:
    used = {path.dtype for path in found.paths}
    return ((dtype, most) for dtype, most in TOLERANCE.items() if dtype in used)


def _describe_speeds(found: list[NetworkSpeed]) -> str:
    return "\n".join(
        f"{one.network}, {_SHORT[one.dtype]}: {one.rows_per_second:,.0f} rows/s "
        f"({flop_rate(one.flop_per_second)}; {one.rows:,} rows in {one.seconds:.2f} s"
        + (f", peak {gibibytes(one.peak_bytes)})" if one.peak_bytes else ")")
        for one in found
    )


def _describe_expectations(found: list[Expectation]) -> str:
    return "\n".join(
        f"{one.experiment}, {_SHORT[one.dtype]}: expected {duration(one.seconds)} and "
        f"{gibibytes(one.memory_bytes)} on one device ({one.rows_a_block:,} rows a block)"
        for one in found
    )


def _describe_slurm(found: Slurm) -> str:
    srun = f"srun {'is' if found.srun else 'is not'} there"
    if not found.in_job:
        return f"not in a job; {srun}"
    return (
        f"in a job: {found.tasks or '?'} tasks on {found.nodes or '?'} nodes, "
        f"{found.cpus_per_task or '?'} CPUs a task; {srun}"
    )


def _describe_hub(found: Hub) -> str:
    token = "a token" if found.token else "no token"
    return f"{escape(found.host)} answers ({found.http_status}); {token}"


def _describe_wandb(found: WandbAccount) -> str:
    return f"{'a login' if found.login else 'no login'}, mode {escape(found.mode)}"
