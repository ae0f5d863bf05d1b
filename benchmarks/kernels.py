"""Does the attention kernel compile well? Registers, spills and shared memory, without a GPU.

    python -m benchmarks.kernels                # all tiles, minutes on one core; prints the table
    python -m benchmarks.kernels --width 64     # some of them
    python -m benchmarks.kernels --write        # and puts the table into docs/PERFORMANCE.md

Every tile is compiled to machine code for each architecture, as Triton does at the first launch,
and cuobjdump, a part of Triton, reads what it takes. It ends with an error where a kernel spills
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

from benchmarks.performance_page import write_table
from tube_lightning.networks import NoisyRows
from tube_lightning.networks.tiles import HALF, TILES, Tile, choose_tile, cut_rows

ARCHITECTURES = (80, 90, 100)
SHARED_MEMORY = 101_376
"""Bytes that a block may take on the GPUs with the least of it (sm_86, sm_89, sm_120)."""
_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_STRIDES = ("_row", "_token", "_head", "_sequence")
"""How the kernel's names of strides end: multiples of 16, as widths are."""
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
) -> Iterator[tuple[int, torch.dtype, int, Tile]]:
    """Yield every tile of every width."""
    for architecture in architectures:
        for dtype in dtypes:
            for width in widths:
                for tile in TILES[dtype in HALF][width]:
                    yield architecture, dtype, width, tile


def compile_tile(architecture: int, dtype: torch.dtype, width: int, tile: Tile) -> Compiled:
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
    sixteens = [
        index
        for index, name in enumerate(names)
        if signature[name].startswith("*") or name.endswith(("width", *_STRIDES))
    ]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(index,): [["tt.divisibility", 16]] for index in sixteens},
    )
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": tile.num_warps, "num_stages": tile.num_stages},
    )
    registers, spilled = _read_usage(compiled.asm["cubin"])
    return Compiled(architecture, dtype, width, tile, registers, spilled, compiled.metadata.shared)


def _type_of(name: str, element: str, constants: dict[str, Any]) -> str:
    """Return an argument's type as Triton spells it."""
    if name in constants:
        return "constexpr"
    if name in ("queries", "keys", "values", "clean_keys", "clean_values", "attended"):
        return f"*{element}"
    if name in ("tile_first", "tile_last", "sequence", "start"):
        return "*i32"
    return "fp32" if name == "scale" else "i32"


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


def computed_over_useful(size: int, sets: int, dtype: torch.dtype, length: int = 1024) -> float:
    """Count query-key pairs that tiles compute, over those that rows see: all blocks of a text."""
    start = torch.arange(0, length, size).repeat_interleave(sets)
    nothing = torch.zeros(len(start), size, dtype=torch.bool)
    rows = NoisyRows(torch.zeros_like(start), start, nothing.long(), nothing, nothing)
    tile = choose_tile(dtype, 64, nothing.numel())
    cut = cut_rows(rows, 1, max(1, tile.queries // size))
    full = cut.first < cut.last
    own = (cut.last - cut.first)[full] * size
    longest = start[cut.last[full] - 1]  # rows are in order of start
    steps = (own + tile.keys - 1) // tile.keys + (longest + tile.keys - 1) // tile.keys
    return int(steps.sum()) * tile.queries * tile.keys / int(((start + size) * size).sum())


def render_pairs() -> str:
    """Write how much of the work is padding and masks."""
    lines = ["| all blocks of 1,024 tokens | fp32 | bf16 |", "|---|---:|---:|"]
    for what, size, sets in (
        ("L' = 4, all 15 sets", 4, 15),
        ("L' = 4, 6 sets", 4, 6),
        ("L' = 8, all 255 sets", 8, 255),
        ("L' = 8, 3 sets", 8, 3),
        ("L' = 16, 64 sets", 16, 64),
    ):
        ratios = (computed_over_useful(size, sets, d) for d in (torch.float32, torch.bfloat16))
        lines.append(f"| {what} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    return "\n".join(lines) + "\n"


def render(found: Sequence[Compiled]) -> str:
    """Write the table: a line for each tile, and one for dtypes that take the same."""
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
    cells: dict[tuple[int, Tile, str], list[str]] = {}
    for one in found:
        cells.setdefault((one.width, one.tile, _DTYPES[one.dtype]), []).append(
            f"{one.registers} / {one.shared / 1024:.0f} / {one.resident}"
        )
    dtypes: dict[tuple[int, Tile, str], list[str]] = {}
    for (width, tile, dtype), numbers in sorted(cells.items()):
        dtypes.setdefault((width, tile, " | ".join(numbers)), []).append(dtype)
    for (width, tile, numbers_of_all), names in dtypes.items():
        shape = f"{tile.queries} x {tile.keys}, {tile.num_warps} warps, {tile.num_stages} stages"
        lines.append(f"| {width}, {' and '.join(names)} | {shape} | {numbers_of_all} |")
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
    table = f"{render(found)}\nQuery-key pairs computed over useful ones:\n\n{render_pairs()}"
    print(table, end="")
    complaints = [complaint for one in found if (complaint := one.complaint())]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if options.write:
        write_table("kernels", table)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
