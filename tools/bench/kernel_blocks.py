"""Time the Triton kernels on this card with other blocks, warps and stages than `fused_attention.settings_of` chooses.

    python tools/bench/kernel_blocks.py compile      # in all cores, into Triton's cache; no need to wait for it
    python tools/bench/kernel_blocks.py --out blocks.jsonl

Prints, for every kernel and width of a head, the time of the current choice and the five fastest ones. The sizes are
those of `tools/check/gpu.py --only kernels`.
"""

import argparse
import itertools
import json
import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
from torch import Tensor
from triton.runtime.errors import OutOfResources  # pyright: ignore[reportMissingImports]

from xmtc.models.kernels import fused_attention as fused
from xmtc.models.kernels.options import Options

DOCUMENTS, TOKENS, LABELS, WIDTH = 8, 2048, 50_000, 512
KERNELS: tuple[fused.Kernel, ...] = ("forward", "label_gradient", "token_gradient")
CASES = [(4, False), (8, False), (8, True), (16, False)]  # heads, normalised queries
BLOCKS = list(itertools.product((64, 128), (32, 64, 128), (4, 8), (2, 3)))


def tensors(heads: int) -> dict[str, Tensor]:
    def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, device="cuda").to(dtype)

    documents = [
        draw(DOCUMENTS * TOKENS, WIDTH, dtype=torch.bfloat16) for _ in range(2)
    ]
    tables = [draw(LABELS, WIDTH) for _ in range(2)]
    stored = [draw(DOCUMENTS, heads, LABELS) for _ in range(2)]
    offsets = torch.arange(DOCUMENTS + 1, device="cuda", dtype=torch.int32) * TOKENS
    names = (
        "keys",
        "values",
        "queries",
        "weights",
        "lse",
        "outputs",
        "offsets",
        "logits",
    )
    return dict(
        zip(
            names,
            (*documents, *tables, *stored, offsets, draw(DOCUMENTS, LABELS)),
            strict=True,
        )
    )


def launch(
    kernel: fused.Kernel,
    x: dict[str, Tensor],
    settings: dict[str, Any],
    *,
    compile_only: bool = False,
) -> None:
    """Launch one kernel as `fused_attention` does; into the same outputs every time."""
    blocks_L, blocks_T = (
        triton.cdiv(LABELS, settings["BLOCK_C"]),
        triton.cdiv(TOKENS, settings["BLOCK_T"]),
    )
    inputs = (x["keys"], x["values"], x["queries"], x["weights"], x["offsets"])
    stored = (x["lse"], x["outputs"])
    heads = settings["HEADS"]
    if kernel == "forward":
        grid, arguments = (blocks_L, DOCUMENTS), (*inputs, x["logits"], *stored, LABELS)
    elif kernel == "label_gradient":
        outputs = (torch.empty_like(x["queries"]), torch.empty_like(x["weights"]))
        grid, arguments = (
            (blocks_L, heads),
            (*inputs, *stored, x["logits"], *outputs, DOCUMENTS, LABELS),
        )
    else:
        outputs = (torch.empty_like(x["keys"]), torch.empty_like(x["values"]))
        grid, arguments = (
            (DOCUMENTS * blocks_T, heads, 1),
            (*inputs, *stored, x["logits"], *outputs, LABELS, blocks_T, 1),
        )
        settings = {**settings, "ATOMIC": False}
    function = getattr(fused, f"_{kernel}_kernel")
    if compile_only:
        function.warmup(*arguments, grid=grid, **settings)
    else:
        function[grid](*arguments, **settings)


def candidates() -> Iterator[tuple[fused.Kernel, int, bool, dict[str, Any]]]:
    """Kernel, heads, normalised queries, settings; the current choice first."""
    for kernel, (heads, normalise) in itertools.product(KERNELS, CASES):
        options, keys = (
            Options(heads=heads, normalise_queries=normalise),
            torch.empty(1, WIDTH, dtype=torch.bfloat16),
        )
        chosen = fused.settings_of(
            kernel, keys, options, torch.cuda.get_device_capability()
        )
        yield kernel, heads, normalise, chosen
        for labels, tokens, warps, stages in BLOCKS:
            other = {
                "BLOCK_C": labels,
                "BLOCK_T": tokens,
                "num_warps": warps,
                "num_stages": stages,
            }
            yield kernel, heads, normalise, chosen | other


def fill_cache(part: int, parts: int) -> None:
    """Compile every `parts`-th candidate."""
    for kernel, heads, _, settings in list(candidates())[part::parts]:
        launch(kernel, tensors(heads), settings, compile_only=True)


def milliseconds(run: Callable[[], None], repeats: int = 3) -> float:
    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def measure() -> Iterator[dict[str, Any]]:
    for (heads, _), chosen in itertools.groupby(
        sorted(candidates(), key=lambda c: c[1:3]), key=lambda c: c[1:3]
    ):
        x = tensors(heads)
        for kernel, _, normalise, settings in chosen:
            try:
                took = milliseconds(lambda k=kernel, s=settings, x=x: launch(k, x, s))
            except OutOfResources:  # this card does not hold it
                continue
            blocks = {
                name: settings[name]
                for name in ("BLOCK_C", "BLOCK_T", "num_warps", "num_stages")
            }
            yield {
                "kernel": kernel,
                "head_width": WIDTH // heads,
                "normalise": normalise,
                **blocks,
                "ms": round(took, 2),
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["compile", "time"], default="time")
    parser.add_argument("--out", type=Path, help="all times, as JSON lines")
    given = parser.parse_args()
    if given.what == "compile":
        parts = max(1, (os.cpu_count() or 1) - 2)
        workers = [
            get_context("spawn").Process(target=fill_cache, args=(part, parts))
            for part in range(parts)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return
    rows = list(measure())
    if given.out:
        given.out.write_text(
            "".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8"
        )
    for case, times in itertools.groupby(
        rows, key=lambda row: [row[k] for k in ("kernel", "head_width", "normalise")]
    ):
        chosen, *others = times
        best = sorted(others, key=lambda row: row["ms"])[:5]
        print(*case, *(tuple(row.values())[3:] for row in (chosen, *best)))


if __name__ == "__main__":
    main()
