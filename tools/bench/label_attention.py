"""Label attention, forward and backward: time and extra memory of every implementation against the einsum formula.

Prints JSON lines. Two bars: `sdpa` (or the implementation given) takes at most half the time and a third of the extra
memory of einsum at B=4, T=256, L=4,271, d=384; its extra memory at L=50,000, beyond logits, parameters and their
gradients, is within 1.5 times that at L=5,000. Each memory figure is the peak of the resident set of a fresh process.

    .venv/bin/python tools/bench/label_attention.py [--implementation chunked] [--dtype bfloat16] [--threads 2]
"""

import argparse
import gc
import json
import math
import subprocess
import sys
import time

import torch
from torch import Tensor

from bars import memory_bytes
from xmtc.models.kernels.dispatch import label_attention
from xmtc.models.kernels.options import Options

DOCUMENTS, TOKENS, WIDTH, HEADS = 4, 256, 384, 6
TIME_BAR, MEMORY_BAR, GROWTH_BAR = 2.0, 1 / 3, 1.5


def einsum(
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    queries: Tensor,
    weights: Tensor,
    bias: Tensor,
) -> Tensor:
    """The formula of docs/explanation/kernels.md, written with einsum as published label-attention heads do."""
    keys, values, queries = (
        x.unflatten(-1, (HEADS, -1)) for x in (keys, values, queries.to(keys.dtype))
    )
    scores = torch.einsum("lhe,bthe->bhlt", queries, keys) / math.sqrt(WIDTH // HEADS)
    attention = (
        scores.float()
        .masked_fill(~mask[:, None, None], -torch.inf)
        .softmax(-1)
        .to(values.dtype)
    )
    contexts = torch.einsum("bhlt,bthe->blhe", attention, values).flatten(-2)
    return torch.einsum("bld,ld->bl", contexts, weights.to(keys.dtype)).float() + bias


def build(labels: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    keys, values = (
        torch.randn(DOCUMENTS, TOKENS, WIDTH).to(dtype).requires_grad_()
        for _ in range(2)
    )
    lengths = torch.tensor([[TOKENS], [TOKENS], [TOKENS - 16], [TOKENS - 32]])
    tables = [torch.randn(labels, WIDTH).requires_grad_() for _ in range(2)]
    return (
        keys,
        values,
        torch.arange(TOKENS) < lengths,
        *tables,
        torch.zeros(labels, requires_grad=True),
    )


def step(name: str, tensors: tuple[Tensor, ...]) -> None:
    """One forward and backward; gradients are dropped, so that every call starts alike.

    Args:
        name: "einsum", an implementation, or one with a normaliser other than softmax ("chunked/sparsemax").
        tensors: as `build` makes them.
    """
    implementation, _, normaliser = name.partition("/")
    options = Options(
        heads=HEADS, implementation=implementation, normaliser=normaliser or "softmax"
    )
    logits = (
        einsum(*tensors) if name == "einsum" else label_attention(*tensors, options)
    )
    logits.backward(torch.full_like(logits, 1e-3))
    for tensor in tensors:
        tensor.grad = None


def measure_memory(name: str, labels: int, dtype: torch.dtype) -> int:
    """Bytes by which one step raises the peak of this process's resident set."""
    step(
        name, build(64, dtype)
    )  # thread pools and code pages, which are not the step's
    tensors = build(labels, dtype)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")  # the peak starts again from what is resident now
    before = memory_bytes()
    step(name, tensors)
    return memory_bytes("VmHWM") - before


def memory(name: str, labels: int, args: argparse.Namespace) -> int:
    command = [sys.executable, __file__, "--worker", name, "--labels", str(labels)]
    command += ["--dtype", args.dtype, "--threads", str(args.threads)]
    return int(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )


def times(names: list[str], labels: int, args: argparse.Namespace) -> dict[str, float]:
    """Best of several interleaved rounds, seconds; CPU seconds with --cpu-time, which other load does not disturb."""
    clock = time.process_time if args.cpu_time else time.perf_counter
    tensors = build(labels, getattr(torch, args.dtype))
    best = dict.fromkeys(names, math.inf)
    for _ in range(args.rounds):
        for name in names:
            start = clock()
            step(name, tensors)
            best[name] = min(best[name], clock() - start)
    return best


def bench(args: argparse.Namespace) -> bool:
    chosen, labels = args.implementation, 4271
    names = list(dict.fromkeys(["einsum", "sdpa", "chunked", chosen]))
    sparse = [
        f"{name}/{normaliser}"
        for normaliser in ("sparsemax", "entmax15")
        for name in ("sdpa", "chunked")
    ]
    seconds = times(names + sparse, labels, args)
    extra = {name: memory(name, labels, args) for name in names}
    for name in names:
        row = {
            "implementation": name,
            "labels": labels,
            "seconds": round(seconds[name], 4),
        }
        print(
            json.dumps(
                {**row, "extra_mib": round(extra[name] / 2**20, 1), "dtype": args.dtype}
            ),
            flush=True,
        )
    for name in sparse:
        print(
            json.dumps(
                {
                    "implementation": name,
                    "labels": labels,
                    "seconds": round(seconds[name], 4),
                }
            ),
            flush=True,
        )
    beyond = {}
    for size in (5_000, 50_000):
        gradients = 2 * size * WIDTH * 4 + size * 4
        logits = (
            3 * DOCUMENTS * size * 4
        )  # before and after the bias, and their gradient
        beyond[size] = max(memory(chosen, size, args) - gradients - logits, 2**20)
        print(
            json.dumps(
                {
                    "implementation": chosen,
                    "labels": size,
                    "beyond_mib": round(beyond[size] / 2**20, 1),
                }
            ),
            flush=True,
        )
    rows = [
        (
            f"{chosen} time: einsum over it",
            seconds["einsum"] / seconds[chosen],
            TIME_BAR,
            True,
        ),
        (
            f"{chosen} extra memory over einsum's",
            extra[chosen] / extra["einsum"],
            MEMORY_BAR,
            False,
        ),
        (
            f"{chosen} extra memory, L=50,000 over L=5,000",
            beyond[50_000] / beyond[5_000],
            GROWTH_BAR,
            False,
        ),
    ]
    return report("label_attention", rows)


def report(name: str, rows: list[tuple[str, float, float, bool]]) -> bool:
    """Prints each bar, then the last line: the ratio is the worst margin, so the bars hold where it is at least 1."""
    margins = [
        ratio / bar if at_least else bar / ratio for _, ratio, bar, at_least in rows
    ]
    for (label, ratio, bar, _), margin in zip(rows, margins, strict=True):
        print(
            json.dumps(
                {
                    "name": label,
                    "ratio": round(ratio, 3),
                    "bar": round(bar, 3),
                    "holds": margin >= 1,
                }
            )
        )
    print(
        json.dumps(
            {
                "name": name,
                "ratio": round(min(margins), 3),
                "bar": 1.0,
                "holds": min(margins) >= 1,
            }
        )
    )
    return min(margins) >= 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--implementation", default="sdpa", choices=["sdpa", "chunked"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="compare CPU seconds, for a busy machine",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--labels", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.worker:
        print(measure_memory(args.worker, args.labels, getattr(torch, args.dtype)))
    else:
        sys.exit(0 if bench(args) else 1)


if __name__ == "__main__":
    main()
