"""What workers that share the label rows hold and do, next to one process.

Each worker trains label attention on made-up documents, once with many labels and once with few. What its memory grows
by from few to many labels is its label part: rows, optimizer state and, with `--mined`, the index. Prints JSON lines.
Bar: the label part of a worker of two is at most 0.55 of that of one process, and so are its rows. The growth of the
whole process, which includes the encoder and the modules that PyTorch imports late, is printed without a bar.

    .venv/bin/python tools/bench/label_parallel.py [--labels 1000000] [--steps 8] [--optimizer lazy_adam] [--mined]

With --bytes, it trains on all labels with shares and with replicas, and prints the documents per second of both, what
a worker of 2, 4 and 8 receives from the others in a micro-batch because the labels are shared, and what it receives in
a step (computed, for sums around a ring) if each has all rows.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from pydantic import TypeAdapter

from bars import held, memory_bytes
from xmtc.data.collate import Batch
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig
from xmtc.losses.config import BinaryCrossEntropyConfig
from xmtc.mining.config import MiningConfig
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.light_config import BagConfig, EmbeddingConfig
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.training.config import FinetuneConfig, OptimizerConfig, PhaseConfig
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.label_shard import LabelShard, build_shard
from xmtc.training.unfreeze import parameter_groups

DOCUMENTS, TOKENS, VOCABULARY, POSITIVES, WIDTH = 32, 48, 20_000, 5, 64
MEMORY_BAR = 0.55
FEW = 20_000  # labels of the run whose memory is not counted


def batch(labels: int, step: int, rank: int, documents: int) -> Batch:
    """This worker's part of a step's documents, their labels Zipf-distributed."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    ids_BT = torch.randint(VOCABULARY, (documents, TOKENS), generator=generator)
    mask_BT = torch.ones(documents, TOKENS, dtype=torch.bool)
    rows_P = torch.arange(documents).repeat_interleave(POSITIVES)
    labels_P = (
        labels
        ** torch.rand(documents * POSITIVES, generator=generator, dtype=torch.float64)
    ).long() - 1
    pairs = torch.stack([rows_P, labels_P.clamp(0, labels - 1)], 1).unique(dim=0)
    return Batch(
        torch.arange(documents),
        ids_BT,
        mask_BT,
        ids_BT,
        mask_BT,
        None,
        pairs[:, 0],
        pairs[:, 1],
        torch.ones(documents),
    )


@contextmanager
def received() -> Iterator[list[float]]:
    """Collect the bytes that this worker receives in each collective of label rows."""
    sizes: list[float] = []

    def counted(
        real: Callable[..., object], output: torch.Tensor, given: torch.Tensor
    ) -> object:
        sizes.append(max(output.nbytes, given.nbytes) * (1 - 1 / dist.get_world_size()))
        return real(output, given)

    names = "all_gather_into_tensor", "reduce_scatter_tensor"
    with patch.multiple(
        dist, **{name: partial(counted, getattr(dist, name)) for name in names}
    ):
        yield sizes


def measure(rank: int, world: int, args: argparse.Namespace) -> dict[str, float]:
    """Bytes and seconds of this worker."""
    torch.set_num_threads(1)
    before = memory_bytes()
    encoder = BagConfig(embedding=EmbeddingConfig(width=WIDTH), window=TOKENS)
    model = ModelConfig(
        encoder=encoder, head=LabelAttentionConfig(width=WIDTH, heads=2), overlap=8
    )
    torch.manual_seed(0)
    if args.replicas:
        classifier = model.build(VOCABULARY, args.labels)
    else:
        classifier = build_shard(model, VOCABULARY, args.labels, 0, (rank, world))
    shard = LabelShard(classifier, split=not args.replicas)
    optimizer = TypeAdapter(RowwiseOptimizerConfig).validate_json(
        json.dumps({"kind": args.optimizer})
    )
    choice: dict = {"sampled_labels": 2048}
    if args.bytes:
        choice, optimizer = {}, None
    elif args.mined:
        choice = {"mining": MiningConfig(candidates=8, uniform=512, refresh_steps=1000)}
    settings = FinetuneConfig(
        loss=BinaryCrossEntropyConfig(),
        optimizer=OptimizerConfig(learning_rate=1e-3, weight_decay=0.0),
        label_optimizer=optimizer,
        **choice,
    )
    objective = FinetuneObjective(classifier, settings, dict, shard)
    strategy = DistributedConfig(workers=world).build_strategy(torch.device("cpu"))
    phase = PhaseConfig(epochs=1, encoder_layers=-1, encoder_learning_rate=1e-3)
    tables = list(classifier.head.label_tables().values())
    module = strategy.prepare(
        objective,
        parameter_groups(classifier.parameter_groups(), phase, settings, tables),
    )
    seconds = []
    for step in range(args.steps):
        start = time.perf_counter()
        objective.before_step(step)
        with received() as sizes:
            output = module(
                batch(args.labels, step, rank, args.documents // world), step
            )
            strategy.backward(output.sum / args.documents)
        strategy.step(1.0)
        seconds.append(time.perf_counter() - start)
    tables = sum(table.nbytes for table in classifier.head.label_tables().values())
    state = strategy.checkpoint_bytes()
    grown, peak = memory_bytes() - before, memory_bytes("VmHWM") - before
    strategy.close()
    return {
        "table_bytes": tables,
        "checkpoint_bytes": state,
        "grown_bytes": grown,
        "peak_grown_bytes": peak,
        "docs_per_s": args.documents
        / statistics.median(seconds[min(2, args.steps - 1) :]),
        "received_bytes": sum(sizes),
    }


def worker(rank: int, world: int, folder: str, args: argparse.Namespace) -> None:
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
        )
    (Path(folder) / f"{rank}.json").write_text(json.dumps(measure(rank, world, args)))
    if world > 1:
        dist.destroy_process_group()


def measured(world: int, labels: int, args: argparse.Namespace) -> dict[str, float]:
    """Memory of the worker with the most, and documents per second of all workers together."""
    args.labels = labels
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(
            worker, (world, folder, args), nprocs=world, start_method="spawn"
        )
        rows = [
            json.loads((Path(folder) / f"{rank}.json").read_text())
            for rank in range(world)
        ]
    found = {key: max(row[key] for row in rows) for key in rows[0]}
    print(
        json.dumps(
            {
                "workers": world,
                "labels": labels,
                **{k: round(v, 1) for k, v in found.items()},
            }
        ),
        flush=True,
    )
    return found


def bench(args: argparse.Namespace) -> bool:
    few, many = (
        {world: measured(world, labels, args) for world in (1, 2)}
        for labels in (FEW, args.labels)
    )
    parts = {
        key: [many[world][key] - few[world][key] for world in (1, 2)]
        for key in ("grown_bytes", "peak_grown_bytes")
    }
    parts["table_bytes"] = [many[world]["table_bytes"] for world in (1, 2)]
    for key, (one, two) in parts.items():
        print(json.dumps({"label_part": key, "one_process": one, "worker_of_two": two}))
    whole = many[2]["grown_bytes"] / many[1]["grown_bytes"]
    print(
        json.dumps(
            {
                "growth of the whole process, worker of two over one process": round(
                    whole, 3
                )
            }
        )
    )
    bars = [
        ("rows of a worker of two over one process", "table_bytes"),
        ("label part of a worker of two over one process", "grown_bytes"),
        (
            "peak of the label part of a worker of two over one process",
            "peak_grown_bytes",
        ),
    ]
    return held(
        "label_parallel",
        [(name, parts[key][1] / parts[key][0], MEMORY_BAR) for name, key in bars],
    )


def exchanges(args: argparse.Namespace) -> None:
    """Bytes that a worker receives in a step, with `DOCUMENTS` documents of `TOKENS` tokens for each worker."""
    for world in (2, 4, 8):
        args.documents = world * DOCUMENTS
        shares = measured(world, args.labels, args)
        args.replicas = True
        replicas = measured(world, args.labels, args)
        args.replicas = False
        ring = 2 * (world - 1) / world * 2 * args.labels * WIDTH * 4
        faster = replicas["docs_per_s"] / shares["docs_per_s"]
        sizes = {"received_bytes": shares["received_bytes"], "replicas_would": ring}
        print(
            json.dumps(
                {"workers": world, **sizes, "replicas_are_faster": round(faster, 2)}
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--labels", type=int, default=1_000_000, help=f"many labels; few are {FEW:,}"
    )
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--optimizer", default="lazy_adam")
    parser.add_argument(
        "--mined",
        action="store_true",
        help="mine hard negatives, in an index of each worker's rows",
    )
    parser.add_argument(
        "--bytes", action="store_true", help="only what workers exchange"
    )
    args = parser.parse_args()
    args.documents, args.replicas = DOCUMENTS, False
    if args.bytes:
        exchanges(args)
    elif not bench(args):
        sys.exit(1)


if __name__ == "__main__":
    main()
