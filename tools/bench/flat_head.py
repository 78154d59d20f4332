"""The flat head at three million labels: memory and time of a training step on the CPU.

Prints JSON lines. Bars: the peak of the whole process stays under 1.3 times the bytes of rows, momentum and encoder,
including interpreter and libraries; the step's time is linear in L: per label at 3,000,000 at most 1.2 times that at
750,000. The slope is stated against the memory bandwidth that a large copy reaches.

    .venv/bin/python tools/bench/flat_head.py [--labels 3000000] [--width 256] [--row-dtype bfloat16]
"""

import argparse
import json
import sys
import time

import torch
from torch import nn

from bars import held, memory_bytes
from xmtc.distributed.row_shards import RowShard
from xmtc.distributed.rowwise_config import SGDConfig
from xmtc.losses.base import Targets
from xmtc.losses.config import BinaryCrossEntropyConfig
from xmtc.training.flat_step import FlatStep
from xmtc.training.label_shard import GatheredDocuments

DOCUMENTS, TOKENS, VOCABULARY, POSITIVES = 16, 64, 30_000, 5
MEMORY_BAR, LINEAR_BAR = 1.3, 1.2


def generate(labels: int) -> tuple[torch.Tensor, Targets]:
    """A batch with Zipf-distributed labels, and tokens that depend on them, so that there is something to learn."""
    uniform = torch.rand(DOCUMENTS, POSITIVES, dtype=torch.float64)
    columns_BP = (labels**uniform).long().clamp(max=labels) - 1  # density ∝ 1/rank
    noise = torch.randint(VOCABULARY, (DOCUMENTS, TOKENS - POSITIVES))
    tokens = torch.cat([columns_BP * 7919 % VOCABULARY, noise], 1)
    pairs = torch.stack(
        [torch.arange(DOCUMENTS).repeat_interleave(POSITIVES), columns_BP.flatten()], 1
    ).unique(dim=0)
    return tokens, Targets(pairs[:, 0], pairs[:, 1], torch.ones(DOCUMENTS))


class Training:
    """A flat head with its encoder and optimizers.

    Attributes:
        row_bytes: of rows and their momentum.
        encoder_bytes: of weights and two moments.
    """

    def __init__(self, labels: int, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.labels = labels
        self.encoder = nn.EmbeddingBag(VOCABULARY, args.width, mode="mean", sparse=True)
        self.optimizer = torch.optim.SparseAdam(self.encoder.parameters(), lr=1e-3)
        weights = torch.empty(
            labels, args.width, dtype=getattr(torch, args.row_dtype)
        ).normal_(std=args.width**-0.5)
        shards = [
            RowShard.placed(table, 0, labels, True)
            for table in (weights, torch.full((labels,), -5.0))
        ]
        self.update = SGDConfig(momentum=args.momentum).build(shards)
        for shard in shards:
            self.update.make_state(shard)
        self.flat = FlatStep(BinaryCrossEntropyConfig().build(), *shards)
        self.row_bytes = sum(
            t.nbytes
            for shard in shards
            for t in (shard, *self.update.state[shard].values())
        )
        self.encoder_bytes = 3 * sum(p.nbytes for p in self.encoder.parameters())

    def step(self) -> tuple[float, float]:
        """One step's seconds, and CPU seconds."""
        tokens, targets = generate(self.labels)
        start, start_cpu = time.perf_counter(), time.process_time()
        documents = GatheredDocuments((self.encoder(tokens),), tokens > 0, targets)
        (self.flat(documents).sum / DOCUMENTS).backward()
        for part, gradients in self.flat.chunks(1.0):
            for shard, gradient in zip(self.flat.shards, gradients, strict=True):
                self.update.update(shard, part, gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start, time.process_time() - start_cpu


def bandwidth() -> float:
    """Bytes per second that a large copy reads and writes: the best of three."""
    source = torch.zeros(2**26)
    target, best = torch.empty_like(source), 0.0
    for _ in range(3):
        start = time.perf_counter()
        target.copy_(source)
        best = max(best, 2 * source.nbytes / (time.perf_counter() - start))
    return best


def bench(args: argparse.Namespace) -> bool:
    whole = Training(args.labels, args)
    whole.step()
    peak = memory_bytes("VmHWM")
    quarter = Training(args.labels // 4, args)
    quarter.step()
    times = {"whole": [], "quarter": []}
    for _ in range(args.steps):  # turn by turn, so that other load meets both
        times["quarter"].append(quarter.step())
        times["whole"].append(whole.step())
    seconds, cpu = (
        {size: min(step[clock] for step in steps) for size, steps in times.items()}
        for clock in (0, 1)
    )
    sizes = {
        "row_bytes": whole.row_bytes,
        "encoder_bytes": whole.encoder_bytes,
        "peak_bytes": peak,
    }
    print(
        json.dumps(
            {"labels": args.labels, **sizes, "seconds": seconds, "cpu_seconds": cpu}
        )
    )
    used = cpu if args.cpu_time else seconds
    slope = (used["whole"] - used["quarter"]) / (whole.labels - quarter.labels)
    moved, peak_rate = 2 * whole.row_bytes / whole.labels / slope, bandwidth()
    rates = {
        "row_traffic_gb_s": moved / 1e9,
        "copy_gb_s": peak_rate / 1e9,
        "share_of_copy": moved / peak_rate,
    }
    print(
        json.dumps(
            {
                "ns_a_label": round(slope * 1e9, 2),
                **{k: round(v, 3) for k, v in rates.items()},
            }
        )
    )
    memory = peak / (whole.row_bytes + whole.encoder_bytes)
    bars = [("peak of the process over rows, momentum and encoder", memory, MEMORY_BAR)]
    linear = used["whole"] / (4 * used["quarter"])
    bars.append(
        ("time per label, all labels over a quarter of them", linear, LINEAR_BAR)
    )
    return held("flat_head", bars)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, default=3_000_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument(
        "--row-dtype", default="bfloat16", choices=["float32", "bfloat16"]
    )
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="compare CPU seconds, for a busy machine",
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sys.exit(0 if bench(args) else 1)


if __name__ == "__main__":
    main()
