"""The devices that torch sees, and the one to look at."""

from dataclasses import dataclass

import torch

_KINDS = ("cpu", "cuda", "mps")


@dataclass(frozen=True)
class Accelerator:
    """One device besides the CPU."""

    device: str
    name: str
    memory_bytes: int | None
    free_bytes: int | None
    architecture: str | None
    processors: int | None


def list_accelerators() -> list[Accelerator]:
    """List CUDA's devices (or ROCm's), or Apple's."""
    if torch.cuda.is_available():
        return [_describe_cuda(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        total = torch.mps.recommended_max_memory()
        free = total - torch.mps.driver_allocated_memory()
        return [Accelerator("mps", "Apple GPU", total, free, None, None)]
    return []


def _describe_cuda(index: int) -> Accelerator:
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return Accelerator(
        f"cuda:{index}",
        properties.name,
        total,
        free,
        f"sm_{properties.major}{properties.minor}",
        properties.multi_processor_count,
    )


def choose_device(name: str | None) -> torch.device:
    """Check the name of a device, or choose as Lightning does: CUDA, Apple's, the CPU."""
    there = {"cpu": 1, "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0}
    there["mps"] = int(torch.backends.mps.is_available())
    if name is None:
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if there[kind]))
    kind, colon, index = name.partition(":")
    if kind not in _KINDS or (colon and not index.isdecimal()):
        raise ValueError(f"--device: expected cpu, cuda, cuda:N or mps, got {name!r}")
    if int(index or 0) >= there[kind]:
        raise ValueError(
            f"--device: expected one that torch {torch.__version__} sees here "
            f"({', '.join(f'{k}: {n}' for k, n in there.items())}), got {name!r}"
        )
    return torch.device(name)


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was told."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()
