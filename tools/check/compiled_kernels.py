"""Compile the Triton kernels for GPUs, without one: registers, spilled bytes and shared memory of each.

    .venv-triton/bin/python tools/check/compiled_kernels.py
    .venv-triton/bin/python tools/check/compiled_kernels.py --cards 86 --widths 128

Prints one JSON line per kernel, and exits 1 if one spills more than `SPILLED_BYTES`, or needs more shared memory than
the card has.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
from triton.compiler import ASTSource  # pyright: ignore[reportMissingImports]

from xmtc.models.kernels import fused_attention
from xmtc.models.kernels.options import Options

SHARED_BYTES = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10}
"""Most shared memory of a block, by compute capability (CUDA C++ Programming Guide)."""
SPILLED_BYTES = 64
"""Where smaller blocks avoid so few, they take twice the time (tools/bench/kernel_blocks.py on an H100, width 128)."""
KERNELS: tuple[fused_attention.Kernel, ...] = (
    "forward",
    "label_gradient",
    "token_gradient",
)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_LAUNCH = ("num_warps", "num_stages", "enable_fp_fusion")
_OF_KEYS = ("keys", "values")


def compiled(
    kernel: fused_attention.Kernel, card: int, width: int, dtype: str
) -> dict[str, Any]:
    """Compile one kernel with the settings of its launch."""
    keys = torch.empty(1, 8 * width, dtype=DTYPES[dtype])
    settings = fused_attention.settings_of(
        kernel, keys, Options(heads=8), (card // 10, card % 10)
    )
    constants = {name: value for name, value in settings.items() if name not in _LAUNCH}
    function = getattr(fused_attention, f"_{kernel}_kernel")
    if "ATOMIC" in function.arg_names:
        constants["ATOMIC"] = True
    signature = {name: _type(name, dtype, constants) for name in function.arg_names}
    pointers = [
        place
        for place, name in enumerate(function.arg_names)
        if signature[name].startswith("*")
    ]
    aligned = {(place,): [["tt.divisibility", 16]] for place in pointers}
    source = ASTSource(function, signature, constexprs=constants, attrs=aligned)
    found = triton.compile(
        source, GPUTarget("cuda", card, 32), {name: settings[name] for name in _LAUNCH}
    )
    registers, spilled = _resources(found.asm["ptx"])
    fits = spilled <= SPILLED_BYTES and found.metadata.shared <= SHARED_BYTES[card]
    facts = {
        "registers": registers,
        "spilled_bytes": spilled,
        "shared_bytes": found.metadata.shared,
    }
    return {
        "kernel": kernel,
        "card": f"sm_{card}",
        "width": width,
        "dtype": dtype,
        **facts,
        "holds": fits,
    }


def _type(name: str, dtype: str, constants: dict[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if name.startswith("n_") or name in ("blocks", "splits"):
        return "i32"
    return "*i32" if name == "offsets" else f"*{dtype if name in _OF_KEYS else 'fp32'}"


def _resources(ptx: str) -> tuple[int, int]:
    """Registers of a thread and bytes that it spills, from ptxas."""
    card = re.findall(r"\.target (\w+)", ptx)[0]
    ptxas = Path(str(triton.__file__)).parent / "backends/nvidia/bin/ptxas"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command = [
            ptxas,
            "-v",
            f"--gpu-name={card}",
            path,
            "-o",
            Path(folder) / "kernel.cubin",
        ]
        said = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stderr
    return int(re.findall(r"Used (\d+) registers", said)[0]), sum(
        map(int, re.findall(r"(\d+) bytes spill", said))
    )


def cases(
    cards: list[int], widths: list[int]
) -> Iterator[tuple[fused_attention.Kernel, int, int, str]]:
    """Kernel, card, width of a head, type of the keys."""
    for card in cards:
        for width in widths:
            yield from (
                (kernel, card, width, dtype) for dtype in DTYPES for kernel in KERNELS
            )


def main() -> int:
    """Compile all; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cards",
        type=int,
        nargs="+",
        default=list(SHARED_BYTES),
        choices=list(SHARED_BYTES),
    )
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[32, 64, 128], help="widths of a head"
    )
    given = parser.parse_args()
    held = True
    with ThreadPoolExecutor() as pool:
        for line in pool.map(
            lambda case: compiled(*case), cases(given.cards, given.widths)
        ):
            print(json.dumps(line), flush=True)
            held &= line["holds"]
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
