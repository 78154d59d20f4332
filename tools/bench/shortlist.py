"""Shortlist training of the label-attention head: does the step's time depend on the shortlist, and not on L?

Whole optimizer steps through the real objective and strategy (draw or mine labels, forward, loss, backward, clipping,
row-wise optimizer) on cached hidden states, at d=128, B=16, T=128. Two ways to about 512 labels per step: drawn
uniformly, and mined with FAISS. Prints JSON lines. Bars: a step at L=1,000,000 takes at most 1.3 times the step at
L=10,000, for each of them, and the process stays under 12 GiB in all. The first index is built, and timed, before
the steps; a refresh in the background is not part of them.

    .venv/bin/python tools/bench/shortlist.py [--optimizer rowwise_adagrad|lazy_adam] [--row-dtype bfloat16]

The other question, whether it learns as much, is answered on GND by `tools/study/shortlist_parity.py`.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from bars import held, in_own_process, memory_bytes
from xmtc.data.collate import Batch
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.rowwise_config import LazyAdamConfig, RowwiseAdagradConfig
from xmtc.losses.config import BinaryCrossEntropyConfig
from xmtc.mining.config import MiningConfig
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.training.config import FinetuneConfig, PhaseConfig
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.label_shard import LabelShard
from xmtc.training.unfreeze import parameter_groups

DOCUMENTS, TOKENS, HIDDEN, WIDTH, HEADS, SHORTLIST, POSITIVES = (
    16,
    128,
    384,
    128,
    4,
    512,
    3,
)
SMALL, LARGE, TIME_BAR, MEMORY_BAR_GIB = 10_000, 1_000_000, 1.3, 12.0
ENCODER = {
    "model_type": "bert",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
OPTIMIZERS = {"rowwise_adagrad": RowwiseAdagradConfig(), "lazy_adam": LazyAdamConfig()}
CANDIDATES = 24  # a document; with as many uniform ones as make up the shortlist
MINED = FinetuneConfig(
    loss=BinaryCrossEntropyConfig(),
    mining=MiningConfig(
        candidates=CANDIDATES,
        uniform=SHORTLIST - DOCUMENTS * (CANDIDATES + POSITIVES),
        refresh_steps=10**6,
    ),
)
DRAWN = FinetuneConfig(loss=BinaryCrossEntropyConfig(), sampled_labels=SHORTLIST)


def batches(labels: int) -> Iterator[Batch]:
    """Documents whose hidden states are cached already, with labels drawn by Zipf's law."""
    generator = torch.Generator().manual_seed(0)
    mask_BT = torch.ones(DOCUMENTS, TOKENS, dtype=torch.bool)
    ids_BT = torch.zeros(DOCUMENTS, TOKENS, dtype=torch.int64)
    while True:
        labels_P = (
            labels ** torch.rand(DOCUMENTS * POSITIVES, generator=generator)
        ).long() - 1
        yield Batch(
            documents_B=torch.arange(DOCUMENTS),
            token_ids_BT=ids_BT,
            mask_BT=mask_BT,
            input_ids_WU=ids_BT,
            attention_mask_WU=mask_BT,
            position_BT=None,
            rows_P=torch.arange(DOCUMENTS).repeat_interleave(POSITIVES),
            labels_P=labels_P,
            weight_B=torch.ones(DOCUMENTS),
            hidden_BTD=torch.randn(DOCUMENTS, TOKENS, HIDDEN, generator=generator),
        )


def measure(labels: int, args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a step, CPU seconds of it, mining's times, and the peak of this process's resident set."""
    torch.manual_seed(0)
    head = LabelAttentionConfig(width=WIDTH, heads=HEADS, row_dtype=args.row_dtype)
    encoder = HuggingFaceConfig(from_config=ENCODER | {"intermediate_size": HIDDEN})
    classifier = ModelConfig(encoder=encoder, head=head).build(100, labels)
    settings = MINED if args.way == "mined" else DRAWN
    settings = replace(settings, label_optimizer=OPTIMIZERS[args.optimizer])
    objective = FinetuneObjective(classifier, settings, dict, LabelShard(classifier))
    strategy = DistributedConfig().build_strategy(torch.device("cpu"))
    tables = list(classifier.head.label_tables().values())
    groups = parameter_groups(
        classifier.parameter_groups(), PhaseConfig(epochs=1), settings, tables
    )
    module = strategy.prepare(objective, groups)
    objective.before_step(0)
    wall, cpu = [], []
    for step, batch in zip(range(1, args.steps + 4), batches(labels), strict=False):
        start, start_cpu = time.perf_counter(), time.process_time()
        objective.before_step(step)
        strategy.backward(module(batch, step).sum / DOCUMENTS)
        strategy.step(1.0)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    mining = {k.removeprefix("mine/"): v for k, v in objective.read_metrics().items()}
    times = {
        "seconds": statistics.median(wall[3:]),
        "cpu_seconds": statistics.median(cpu[3:]),
    }
    times |= {"peak_gib": memory_bytes("VmHWM") / 2**30}
    return times | {
        key: mining[key] for key in ("labels", "build_s", "query_ms") if key in mining
    }


def measured(labels: int, way: str) -> dict[str, float]:
    row = in_own_process("--worker", str(labels), "--way", way)
    figures = {key: round(value, 4) for key, value in row.items()}
    print(json.dumps({"way": way, "labels_L": labels, **figures}), flush=True)
    return row


def bench(args: argparse.Namespace) -> bool:
    clock = "cpu_seconds" if args.cpu_time else "seconds"
    bars, peak = [], 0.0
    for way in ("drawn", "mined"):
        # interleaved and repeated, so that other load on the machine meets both alike
        rows = {labels: [] for labels in (SMALL, LARGE)}
        for _ in range(args.rounds):
            for labels, found in rows.items():
                found.append(measured(labels, way))
        small, large = (
            min(row[clock] for row in rows[labels]) for labels in (SMALL, LARGE)
        )
        peak = max(peak, *(row["peak_gib"] for row in rows[LARGE]))
        bars.append(
            (f"step time, {way}, L=1,000,000 over L=10,000", large / small, TIME_BAR)
        )
    bars.append(("peak memory of the process, GiB", peak, MEMORY_BAR_GIB))
    return held("shortlist", bars)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--optimizer", default="rowwise_adagrad", choices=list(OPTIMIZERS)
    )
    parser.add_argument(
        "--row-dtype", default="float32", choices=["float32", "bfloat16"]
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="compare CPU seconds, for a busy machine",
    )
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=["drawn", "mined"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.worker:
        print(json.dumps(measure(args.worker, args)))
    else:
        sys.exit(0 if bench(args) else 1)


if __name__ == "__main__":
    main()
