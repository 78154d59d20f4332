"""Shortlist training of the label-attention head: does the step's time depend on the shortlist, and not on L?

Prints JSON lines. Two bars at d=128, B=16, T=128, a shortlist of 512: a step (forward, loss, backward, row-wise
optimizer) at L=1,000,000 takes at most 1.3 times the step at L=10,000, and its process stays under 12 GiB in all.

    .venv/bin/python tools/bench_shortlist.py [--optimizer rowwise_adagrad|lazy_adam] [--row-dtype bfloat16]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

from xmtc.models.heads import LabelAttentionConfig
from xmtc.train.rowwise_optim import LazyAdamConfig, RowwiseAdagradConfig, clip_gradients

DOCUMENTS, TOKENS, HIDDEN, WIDTH, HEADS, SHORTLIST = 16, 128, 384, 128, 4, 512
SMALL, LARGE, TIME_BAR, MEMORY_BAR_GIB = 10_000, 1_000_000, 1.3, 12.0


def peak_gib() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 2**20 for line in status if line.startswith("VmHWM"))


def measure(labels: int, args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a step, CPU seconds of it, and the peak of this process's resident set."""
    torch.manual_seed(0)
    settings = {"width": WIDTH, "heads": HEADS, "sparse_gradients": True, "row_dtype": args.row_dtype}
    head = LabelAttentionConfig(**settings).build(HIDDEN, labels)
    tables = [head.queries, head.weights, head.bias]
    rest = [p for p in head.parameters() if all(p is not t for t in tables)]
    optimizer = {"rowwise_adagrad": RowwiseAdagradConfig(), "lazy_adam": LazyAdamConfig()}[args.optimizer].build(tables)
    dense = torch.optim.AdamW(rest, lr=1e-3)
    mask = torch.ones(DOCUMENTS, TOKENS, dtype=torch.bool)
    wall, cpu = [], []
    for _ in range(args.steps + 3):
        hidden = torch.randn(DOCUMENTS, TOKENS, HIDDEN)
        shortlist = torch.randint(labels, (DOCUMENTS, SHORTLIST))
        gold = (torch.rand(DOCUMENTS, SHORTLIST) < 0.02).float()
        start, start_cpu = time.perf_counter(), time.process_time()
        F.binary_cross_entropy_with_logits(head(hidden, mask, shortlist), gold, reduction="sum").backward()
        clip_gradients(head.parameters(), 1.0)
        for each in (optimizer, dense):
            each.step()
            each.zero_grad()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return {"seconds": statistics.median(wall[3:]), "cpu_seconds": statistics.median(cpu[3:]), "peak_gib": peak_gib()}


def in_own_process(labels: int) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", str(labels)]
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(json.dumps({"labels": labels, **{key: round(value, 4) for key, value in row.items()}}), flush=True)
    return row


def bench(args: argparse.Namespace) -> bool:
    clock = "cpu_seconds" if args.cpu_time else "seconds"
    # interleaved and repeated, so that other load on the machine meets both alike
    rows = {labels: [] for labels in (SMALL, LARGE)}
    for _ in range(args.rounds):
        for labels, found in rows.items():
            found.append(in_own_process(labels))
    small, large = (min(row[clock] for row in rows[labels]) for labels in (SMALL, LARGE))
    peak = max(row["peak_gib"] for row in rows[LARGE])
    bars = [("step time, L=1,000,000 over L=10,000", large / small, TIME_BAR)]
    bars.append(("peak memory of the process, GiB", peak, MEMORY_BAR_GIB))
    for name, ratio, bar in bars:
        print(json.dumps({"name": name, "ratio": round(ratio, 3), "bar": bar, "holds": ratio <= bar}))
    worst = min(bar / ratio for _, ratio, bar in bars)
    print(json.dumps({"name": "shortlist", "ratio": round(worst, 3), "bar": 1.0, "holds": worst >= 1}))
    return worst >= 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", default="rowwise_adagrad", choices=["rowwise_adagrad", "lazy_adam"])
    parser.add_argument("--row-dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="compare CPU seconds, for a busy machine")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.worker:
        print(json.dumps(measure(args.worker, args)))
    else:
        sys.exit(0 if bench(args) else 1)


if __name__ == "__main__":
    main()
