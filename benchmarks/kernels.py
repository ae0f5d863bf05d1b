"""Does the attention kernel compile well? Registers, spills and shared memory, without a GPU.

    python -m benchmarks.kernels                # all tiles, minutes on one core; prints the table
    python -m benchmarks.kernels --width 64     # some of them
    python -m benchmarks.kernels --write        # and puts the table into docs/PERFORMANCE.md

Every tile is compiled to machine code for each architecture, as Triton does at the first launch,
and cuobjdump (part of Triton) reads what the code takes. It ends with an error where a kernel spills
registers, or takes more shared memory than the smallest GPU from sm_80 on has.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.page import write_table
from tube_lightning.networks.tiles import HALF, TILES, Tile

ARCHITECTURES = (80, 90, 100)
SHARED_MEMORY = 101_376
"""Bytes that a block may take on the GPUs with the least of it (sm_86, sm_89, sm_120)."""
_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_REGISTERS = 65_536
_WARPS = {80: 64, 90: 64, 100: 64}
_SHARED_PER_SM = {80: 167_936, 90: 233_472, 100: 233_472}


@dataclass(frozen=True)
class Compiled:
    """What one kernel takes."""

    architecture: int
    dtype: torch.dtype
    width: int
    tile: Tile
    aligned: bool
    """whether strides are multiples of 16, as those of all usual networks are"""
    registers: int
    spilled: int
    """bytes a thread"""
    shared: int
    """bytes a block"""

    @property
    def resident(self) -> int:
        """Blocks that fit onto a multiprocessor at once."""
        per_block = -(-self.registers // 8) * 8 * 32 * self.tile.num_warps
        return min(
            _REGISTERS // per_block,
            _SHARED_PER_SM[self.architecture] // (self.shared + 1024),
            _WARPS[self.architecture] // self.tile.num_warps,
        )

    def complaint(self) -> str | None:
        """Say what is wrong with it, if anything is."""
        if self.spilled:
            return f"expected no spilled registers, got {self.spilled} bytes: {self}"
        if self.shared > SHARED_MEMORY:
            return f"expected at most {SHARED_MEMORY} bytes of shared memory: {self}"
        return None


def all_cases(
    architectures: Sequence[int], dtypes: Sequence[torch.dtype], widths: Sequence[int]
) -> Iterator[tuple[int, torch.dtype, int, Tile, bool]]:
    """Yield every tile of every width, with aligned strides and with any."""
    for architecture in architectures:
        for dtype in dtypes:
            for width in widths:
                for tile in TILES[dtype in HALF][width]:
                    for aligned in (True, False):
                        yield architecture, dtype, width, tile, aligned


def compile_tile(
    architecture: int, dtype: torch.dtype, width: int, tile: Tile, aligned: bool = True
) -> Compiled:
    """Compile the kernel with one tile, for heads that are padded to ``width``."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tube_lightning.networks.prefix_kernel import attend_to_prefix

    constants = {
        "QUERIES": tile.queries,
        "KEYS": tile.keys,
        "WIDTH": width,
        "PRECISION": "ieee",
    }
    kernel: Any = attend_to_prefix
    names = kernel.arg_names
    signature = {name: _type_of(name, _DTYPES[dtype], constants) for name in names}
    known = [
        index
        for index, name in enumerate(names)
        if signature[name].startswith("*")
        or (
            aligned and (name == "width" or name.endswith(("_row", "_token", "_head", "_sequence")))
        )
    ]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(index,): [["tt.divisibility", 16]] for index in known},
    )
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": tile.num_warps, "num_stages": tile.num_stages},
    )
    registers, spilled = _read_usage(compiled.asm["cubin"])
    return Compiled(
        architecture, dtype, width, tile, aligned, registers, spilled, compiled.metadata.shared
    )


def _type_of(name: str, element: str, constants: dict[str, Any]) -> str:
    """Return an argument's type as Triton spells it."""
    if name in constants:
        return "constexpr"
    if name in ("queries", "keys", "values", "clean_keys", "clean_values", "attended"):
        return f"*{element}"
    if name in ("tile_first", "tile_last", "sequence", "start"):
        return "*i32"
    return {"refused": "*fp32", "scale": "fp32"}.get(name, "i32")


def _read_usage(cubin: bytes) -> tuple[int, int]:
    """Return the registers of a kernel, and the bytes of its stack: what was spilled."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        told = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", told)
    if found is None:
        raise ValueError(f"cuobjdump: expected REG, STACK and LOCAL, got {told!r}")
    registers, stack, local = map(int, found.groups())
    return registers, max(stack, local)


def render(found: Sequence[Compiled]) -> str:
    """Write the table: a line for each tile, the worst of its variants by architecture."""
    import triton

    architectures = sorted({one.architecture for one in found})
    lines = [
        f"Triton {triton.__version__}; registers a thread / shared memory a block, in KiB / blocks "
        "that fit onto a multiprocessor; spilled bytes: "
        f"{sum(one.spilled for one in found)} in all of {len(found)} kernels.",
        "",
        f"| heads | tile | {' | '.join(f'sm_{a}' for a in architectures)} |",
        f"|---|---|{'---|' * len(architectures)}",
    ]
    rows: dict[tuple[str, Tile], dict[int, Compiled]] = {}
    for one in found:
        if one.aligned:
            key = (f"{_DTYPES[one.dtype]}, {one.width}", one.tile)
            rows.setdefault(key, {})[one.architecture] = one
    for (heads, tile), by_architecture in rows.items():
        shape = f"{tile.queries} x {tile.keys}, {tile.num_warps} warps, {tile.num_stages} stages"
        cells = [
            f"{one.registers} / {one.shared / 1024:.0f} / {one.resident}"
            for one in (by_architecture[a] for a in architectures)
        ]
        lines.append(f"| {heads} | {shape} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print, complain, and write where asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description="What the attention kernel compiles to."
    )
    parser.add_argument("--write", action="store_true", help="the table into docs/PERFORMANCE.md")
    parser.add_argument("--architecture", type=int, nargs="+", default=ARCHITECTURES)
    parser.add_argument("--width", type=int, nargs="+", default=sorted(TILES[True]))
    names = {name: dtype for dtype, name in _DTYPES.items()}
    parser.add_argument("--dtype", choices=names, nargs="+", default=list(names))
    options = parser.parse_args(arguments)
    cases = all_cases(options.architecture, [names[n] for n in options.dtype], options.width)
    found = [compile_tile(*case) for case in cases]
    print(render(found), end="")
    complaints = [complaint for one in found if (complaint := one.complaint())]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if options.write:
        write_table("kernels", render(found))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
