"""Plant the head of a billion-parameter decoder on one process, and on two gloo workers that share its labels.

The decoder is a random LLaMA in float32; 64 random documents of 32 tokens have random labels of 20,000. The head is
narrower than there are documents, because fewer leave directions undecided. Prints what every process holds at its
peak, the seconds of the pass, and how far the planted tensors of two workers are from those of one, relative to their
size. Bar: 1e-5.

    .venv/bin/python tools/bench/planting_ranks.py build/planting_ranks [--layers 22]
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from bars import in_ranks, memory_bytes
from xmtc.data.collate import Batch
from xmtc.distributed.collectives import rank_and_world_size
from xmtc.distributed.row_shards import RowShard
from xmtc.models.classifier import Classifier
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.heads.base import PlantsProjections
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.projections import PlantSums, plant_attention, plant_values
from xmtc.planting.prototypes import plant_prototypes
from xmtc.training.label_shard import LabelShard

DOCUMENTS, BATCH, TOKENS, LABELS, VOCABULARY, WIDTH, RANKED = (
    64,
    8,
    32,
    20_000,
    32_000,
    2048,
    20,
)
BAR = 1e-5


def build(layers: int) -> Classifier:
    torch.manual_seed(0)
    shape = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 5632,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": TOKENS,
    }
    encoder = HuggingFaceConfig(from_config=shape, window=TOKENS).build(VOCABULARY)
    return Classifier(
        encoder, LabelAttentionConfig(width=32, heads=4).build(WIDTH, LABELS), LABELS
    ).eval()


def batch_of(documents: range) -> Batch:
    """Some of the documents, which do not depend on the number of workers."""
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(1, VOCABULARY, (DOCUMENTS, TOKENS)))[documents]
    labels = torch.from_numpy(rng.integers(0, LABELS, (DOCUMENTS, 3)))[documents]
    mask, count = torch.ones_like(ids, dtype=torch.bool), len(documents)
    rows = torch.arange(count).repeat_interleave(3)
    return Batch(
        torch.tensor(documents),
        ids,
        mask,
        ids,
        mask,
        None,
        rows,
        labels.flatten(),
        torch.ones(count),
    )


def ranking(own: slice) -> TokenRanking:
    rng = np.random.default_rng(1)
    tokens = rng.integers(1, VOCABULARY, (LABELS, RANKED), dtype=np.int32)[own]
    counts = np.ones_like(tokens)
    scores = np.sort(rng.random((LABELS, RANKED), dtype=np.float32))[:, ::-1][
        own
    ].copy()
    return TokenRanking(
        tokens,
        scores,
        counts,
        np.ones(VOCABULARY, np.int32),
        np.ones(len(tokens), np.int32),
        DOCUMENTS,
    )


@torch.no_grad()
def work(folder: Path, rank: int, workers: int, layers: int) -> None:
    if workers > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=workers,
        )
    classifier = build(layers)
    shard, head = LabelShard(classifier), classifier.head
    assert isinstance(head, PlantsProjections)
    start, built = time.perf_counter(), memory_bytes("VmHWM")
    share = BATCH // workers
    firsts = [step + rank * share for step in range(0, DOCUMENTS, BATCH)]
    batches = [batch_of(range(first, first + share)) for first in firsts]
    sums = PlantSums(shard.rows, VOCABULARY, WIDTH, torch.device("cpu"))
    for batch in batches:
        sums.add(classifier.encode(batch), batch, shard)
    sums.all_reduce(labels=workers == 1)
    passed = time.perf_counter() - start
    plant_values(head, sums, shard, seed=7)
    plant_attention(head, sums, ranking(shard.own), shard, seed=7, keys=True)
    plant_prototypes(classifier, lambda sums: batches, torch.zeros(shard.rows), shard)
    tensors = {
        n: p.whole(p.detach()) if isinstance(p, RowShard) else p.detach()
        for n, p in head.named_parameters()
    }
    if rank == 0:
        torch.save(tensors, folder / f"{workers}.pt")
    figures = {
        "built_gib": built,
        "peak_gib": memory_bytes("VmHWM"),
        "sums_gib": sum(b.nbytes for b in sums.buffers()),
    }
    rounded = {name: round(value / 2**30, 3) for name, value in figures.items()}
    print(
        json.dumps(
            {"workers": workers, "rank": rank, "pass_s": round(passed, 1), **rounded}
        ),
        flush=True,
    )
    if rank_and_world_size()[1] > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.rank is not None:
        work(given.folder, given.rank, given.workers, given.layers)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    for workers in (1, 2):
        in_ranks(given.folder, workers, "--layers", str(given.layers))
    one, two = (torch.load(given.folder / f"{workers}.pt") for workers in (1, 2))
    apart = {
        name: float((two[name] - one[name]).norm() / one[name].norm().clamp(min=1e-12))
        for name in one
    }
    worst = max(apart.values())
    print(
        json.dumps(
            {"apart": {name: float(f"{value:.1e}") for name, value in apart.items()}}
        )
    )
    print(
        json.dumps(
            {
                "name": "planting on two workers",
                "ratio": worst,
                "bar": BAR,
                "holds": worst <= BAR,
            }
        )
    )
    sys.exit(0 if worst <= BAR else 1)


if __name__ == "__main__":
    main()
