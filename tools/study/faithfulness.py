"""Do the words that the evidence names carry the prediction? Contributions against attention against chance.

    python tools/study/faithfulness.py runs/quickstart [--split dev] [--documents 200]

For the best label of each document, with p its probability: comprehensiveness is p minus the probability without the
top share of tokens (higher: they were needed), sufficiency p minus the probability of these tokens alone (lower: they
are enough); means over documents and the shares 5, 10, 20 and 50 % (DeYoung et al. 2020). `mig_overlap` is the part of
the top 10 % that lies among the label's 100 best tokens by information gain. JSON lines; the last is
{"name", "ratio", "bar", "holds"}: comprehensiveness of contributions over that of random tokens; exit status 1 where it
is not above the bar.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.config.load import load_config
from xmtc.data.corpus import Corpus
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.data.tokenizer import special_tokens
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.predict.predictor import Model
from xmtc.predict.tokenised import TokenisedTexts
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths

SHARES = (0.05, 0.1, 0.2, 0.5)
BAR, TOP_TOKENS, BUDGET = 1.0, 100, 4096
Ids = tuple[NDArray[np.int32], ...]


def batches(model: Model, ids_N: Ids):
    """(rows, batch) over these documents."""
    block = TokenisedTexts(ids_N, (), ())
    collate = model.scorer.collator(block)
    for rows_B in evaluation_batches(block.lengths, BUDGET):
        yield (
            rows_B,
            collate(MicroBatch(rows_B, np.ones(len(rows_B), np.float32))).to(
                model.scorer.device
            ),
        )


def probabilities(
    model: Model, ids_N: Ids, labels_N: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Probability of one label of each document."""
    found_N = np.zeros(len(ids_N))
    for rows_B, batch in batches(model, ids_N):
        logits_BL = model.scorer.classifier(batch).float()
        scores_BL = (
            logits_BL.sigmoid()
            if model.info.task == "multi_label"
            else logits_BL.softmax(1)
        )
        found_N[rows_B] = (
            scores_BL[torch.arange(len(rows_B)), torch.from_numpy(labels_N[rows_B])]
            .cpu()
            .numpy()
        )
    return found_N


def evidence(
    model: Model, ids_N: Ids
) -> tuple[NDArray[np.int64], dict[str, list[NDArray[np.float32]]]]:
    """The best label of each document, and its content tokens' scores by signal."""
    head, first = (
        model.scorer.classifier.head,
        len(special_tokens(model.scorer.tokenizer)[0]),
    )
    labels_N = np.zeros(len(ids_N), np.int64)
    signals: dict[str, list] = {
        name: [None] * len(ids_N) for name in ("contributions", "attention", "random")
    }
    random = np.random.default_rng(0)
    for rows_B, batch in batches(model, ids_N):
        hidden_BTD = model.scorer.classifier.encode(batch)
        best_B1 = head(hidden_BTD, batch.mask_BT, None).argmax(1, keepdim=True)
        labels_N[rows_B] = best_B1[:, 0].cpu().numpy()
        shares_BT = (
            head.contributions(hidden_BTD, batch.mask_BT, best_B1)[:, 0].cpu().numpy()
        )
        for b, row in enumerate(rows_B):
            one = slice(b, b + 1)
            attention_HT = head.attention(
                hidden_BTD[one], batch.mask_BT[one], best_B1[b]
            )[0, 0]
            inner = slice(first, first + len(ids_N[row]))
            signals["contributions"][row] = shares_BT[b, inner]
            signals["attention"][row] = attention_HT.mean(0).cpu().numpy()[inner]
            signals["random"][row] = random.random(len(ids_N[row]), np.float32)
    return labels_N, signals


def top(scores_T: NDArray[np.float32], share: float) -> NDArray[np.bool_]:
    """Mask of the best tokens; at least one is in it, and at least one is not where there are two."""
    count = min(max(1, round(share * len(scores_T))), max(1, len(scores_T) - 1))
    mask_T = np.zeros(len(scores_T), bool)
    mask_T[np.argsort(-scores_T, kind="stable")[:count]] = True
    return mask_T


def measure(
    model: Model, ids_N: Ids, labels_N: NDArray[np.int64], scores_N: list
) -> dict[str, float]:
    """Comprehensiveness and sufficiency of one signal."""
    whole_N = probabilities(model, ids_N, labels_N)
    drops: dict[str, list[float]] = {"comprehensiveness": [], "sufficiency": []}
    for share in SHARES:
        masks = [top(scores_T, share) for scores_T in scores_N]
        without = tuple(ids[~mask] for ids, mask in zip(ids_N, masks, strict=True))
        alone = tuple(ids[mask] for ids, mask in zip(ids_N, masks, strict=True))
        drops["comprehensiveness"].append(
            float((whole_N - probabilities(model, without, labels_N)).mean())
        )
        drops["sufficiency"].append(
            float((whole_N - probabilities(model, alone, labels_N)).mean())
        )
    return {name: round(float(np.mean(values)), 4) for name, values in drops.items()}


def mig_overlap(
    ranking: TokenRanking, ids_N: Ids, labels_N: NDArray[np.int64], scores_N: list
) -> float:
    """Part of the top 10 % of tokens that is among the label's best by information gain, over ranked labels."""
    parts = [
        np.isin(
            ids[top(scores_T, 0.1)], ranking.token_ids_LK[label, :TOP_TOKENS]
        ).mean()
        for ids, label, scores_T in zip(ids_N, labels_N, scores_N, strict=True)
        if ranking.counts[label] > 0
    ]
    return round(float(np.mean(parts)), 4) if parts else float("nan")


@torch.inference_mode()
def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--documents", type=int, default=200)
    arguments = parser.parse_args()
    config = load_config(RunConfig, arguments.run / "config.yaml", [])
    split = Corpus.open(RunPaths.of(config).corpus).split(arguments.split)
    model = Model.from_pretrained(arguments.run / "model")
    order = np.random.default_rng(config.seed).permutation(len(split))[
        : arguments.documents
    ]
    ids_N = tuple(
        np.array(split.tokens(int(i))) for i in np.sort(order) if split.lengths[i] > 1
    )
    labels_N, signals = evidence(model, ids_N)
    path = arguments.run / "mig" / "ranking.safetensors"
    ranking = TokenRanking.load(path) if path.is_file() else None
    results = {}
    for name, scores_N in signals.items():
        results[name] = measure(model, ids_N, labels_N, scores_N)
        if ranking is not None:
            results[name]["mig_overlap"] = mig_overlap(
                ranking, ids_N, labels_N, scores_N
            )
        print(
            json.dumps({"signal": name, "documents": len(ids_N), **results[name]}),
            flush=True,
        )
    ratio = results["contributions"]["comprehensiveness"] / max(
        results["random"]["comprehensiveness"], 1e-6
    )
    print(
        json.dumps(
            {
                "name": "faithfulness",
                "ratio": round(ratio, 2),
                "bar": BAR,
                "holds": ratio > BAR,
            }
        )
    )
    return 0 if ratio > BAR else 1


if __name__ == "__main__":
    sys.exit(main())
