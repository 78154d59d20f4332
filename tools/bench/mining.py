"""Are a label index's neighbours the head's true hard negatives? Measured on a finished run.

For training documents of the run, the m negatives that the trained head scores highest, by computing every logit, are
compared with those that the index finds, re-ranked by the head or not; with what other
vectors would find; and with what the popularity of labels alone would. It also measures the
time to build each kind of index,
to query it, and its agreement with exact search. Prints JSON lines.

    .venv/bin/python tools/bench/mining.py build/shortlist_parity/runs/shortlist-13 [--documents 300]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.config.load import load_config
from xmtc.data.collate import Batch
from xmtc.data.sampler import MicroBatch
from xmtc.mining.config import IndexConfig
from xmtc.mining.index import LabelIndex, LabelVectors, query_vectors
from xmtc.models.heads.label_attention import LabelAttentionHead
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.finetune import load_best
from xmtc.stages.worker import Worker, build_worker

DEPTHS = (16, 64)
RERANK = (1, 2, 4, 8)


def batches(worker: Worker, documents: int) -> list[Batch]:
    rows = np.random.default_rng(0).permutation(len(worker.train))[:documents]
    collate = worker.batches.collator(worker.train)
    return [
        collate(MicroBatch(part, np.ones(len(part), np.float32)))
        for part in np.array_split(rows, documents // 20)
    ]


def negatives(scores_BL: Tensor, batch: Batch, depth: int) -> NDArray[np.int64]:
    """The best-scored labels of each document that are not its own."""
    scores_BL = scores_BL.clone()
    scores_BL[batch.rows_P, batch.labels_P] = -torch.inf
    return scores_BL.topk(depth, dim=1).indices.numpy()


def overlap(found_BK: NDArray[np.int64], true_BK: NDArray[np.int64]) -> float:
    return float(
        np.mean(
            [
                len(set(a) & set(b)) / len(b)
                for a, b in zip(found_BK, true_BK, strict=True)
            ]
        )
    )


def candidates(
    head: LabelAttentionHead, hidden_BTD: Tensor, mask_BT: Tensor
) -> dict[str, Tensor]:
    """Scores (B, L) by which labels could be looked up without computing their attention."""
    mean_BL = (
        head.document_vectors(hidden_BTD, mask_BT) @ head.weights.detach().float().T
    )
    values_BTd = head.value_projection(hidden_BTD).masked_fill(~mask_BT[..., None], 0)
    best_BL = torch.stack(
        [(one @ head.weights.detach().float().T).amax(0) for one in values_BTd]
    )
    return {
        "indexed: row and bias, mean value": mean_BL + head.bias,
        "row without bias, mean value": mean_BL,
        "row and bias, best single token": best_BL + head.bias,
        "bias alone: popularity": head.bias.expand_as(mean_BL),
    }


def study_vectors(
    head: LabelAttentionHead, hidden: list[Tensor], sample: list[Batch]
) -> None:
    sums: dict[str, list[float]] = {}
    for hidden_BTD, batch in zip(hidden, sample, strict=True):
        logits_BL = head(hidden_BTD, batch.mask_BT)
        for name, scores_BL in candidates(head, hidden_BTD, batch.mask_BT).items():
            for depth in DEPTHS:
                for times in RERANK:  # the head's own choice among so many times as many is right where they are in
                    wide = min(times * depth, logits_BL.shape[1])
                    found = overlap(
                        negatives(scores_BL, batch, wide),
                        negatives(logits_BL, batch, depth),
                    )
                    sums.setdefault(f"{name}|{depth}|{times}", []).append(found)
    for key, found in sums.items():
        name, depth, times = key.split("|")
        record = {"vectors": name, "m": int(depth), "rerank": int(times)}
        say({**record, "overlap_with_exact": round(float(np.mean(found)), 3)})


def study_kinds(
    head: LabelAttentionHead, hidden: list[Tensor], sample: list[Batch]
) -> None:
    vectors_Ld, depth = LabelVectors.of(head)[:], DEPTHS[-1]
    queries = [
        query_vectors(head.document_vectors(hidden_BTD, batch.mask_BT))
        for hidden_BTD, batch in zip(hidden, sample, strict=True)
    ]
    exact = [np.argsort(-one @ vectors_Ld.T, axis=1)[:, :depth] for one in queries]
    for kind in ("flat", "ivf"):
        start = time.perf_counter()
        index = LabelIndex(vectors_Ld, IndexConfig(kind=kind))
        built = time.perf_counter()
        found = [index.search(one, depth) for one in queries]
        query_ms = 1000 * (time.perf_counter() - built) / len(queries)
        agrees = float(
            np.mean([overlap(a, b) for a, b in zip(found, exact, strict=True)])
        )
        record = {
            "index": kind,
            "labels": len(vectors_Ld),
            "build_s": built - start,
            "query_ms": query_ms,
        }
        say({**record, "documents_a_query": len(queries[0]), f"recall@{depth}": agrees})


def say(record: dict[str, Any]) -> None:
    print(
        json.dumps(
            {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}
        ),
        flush=True,
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "run", type=Path, help="run directory of a label-attention model"
    )
    parser.add_argument("--documents", type=int, default=300)
    args = parser.parse_args()
    config = load_config(RunConfig, args.run / "config.yaml", [])
    worker = build_worker(config, RunPaths.of(config))
    load_best(worker)
    worker.classifier.eval()
    sample = batches(worker, args.documents)
    hidden = [worker.classifier.encode(batch) for batch in sample]
    study_vectors(worker.classifier.head, hidden, sample)
    study_kinds(worker.classifier.head, hidden, sample)


if __name__ == "__main__":
    main()
