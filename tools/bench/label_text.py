"""How well are labels without training documents scored by their names? Measured on those of dev that train lacks.

    python tools/bench/label_text.py runs/eurlex57k --documents 1000

Prints JSON lines: for the rows as trained and for those of `xmtc labels add` (of the head without calibration,
which new labels have no part of), p@1 and recall@5 among the unseen labels and the mean area under the
curve, on documents that have one; nDCG@5 over all labels, and the share of its top five that unseen labels take.

Suffixes: B, N documents, L labels, U labels without training documents.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score, roc_auc_score

from xmtc.artefact.export import ModelParts, load_model
from xmtc.config.load import load_config
from xmtc.data.collate import Collator
from xmtc.data.corpus import Corpus
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.models.label_rows import embed_texts, rows_of_names
from xmtc.run.config import RunConfig


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument(
        "--documents", type=int, default=1000, help="of dev, from the first [1000]"
    )
    options = parser.parse_args()
    parts = load_model(options.run / "model")
    corpus = Corpus.open(
        load_config(RunConfig, options.run / "config.yaml", []).data.corpus
    )
    gold_NL = corpus.split("dev").label_matrix()[: options.documents].toarray() > 0
    unseen_L = parts.labels.train_counts == 0
    trained_NL, named_NL = logits(parts, corpus, len(gold_NL), unseen_L)
    for rows, logits_NL in (("as trained", trained_NL), ("from names", named_NL)):
        print(json.dumps({"rows": rows, **measure(logits_NL, gold_NL, unseen_L)}))


@torch.no_grad()
def logits(
    parts: ModelParts, corpus: Corpus, documents: int, unseen_L: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits (N, L) of the head as trained, and with rows from names for the unseen labels."""
    model, ids_U = parts.classifier, torch.from_numpy(np.flatnonzero(unseen_L))
    info, dev = parts.info, corpus.split("dev")
    embed = partial(
        embed_texts,
        model,
        parts.tokenizer,
        max_length=info.max_length,
        overlap=info.model.overlap,
    )
    rows = rows_of_names(
        model, parts.labels, [parts.labels.names[i] for i in ids_U], embed
    ).rows
    collate = Collator(
        dev, parts.tokenizer, window=model.encoder.window, overlap=info.model.overlap
    )
    tables = {
        name: (table, table.detach().clone())
        for name, table in model.head.label_tables().items()
    }
    trained_NL = np.empty((documents, len(unseen_L)), np.float32)
    named_NU = np.empty((documents, len(ids_U)), np.float32)
    for part in evaluation_batches(dev.lengths[:documents], 8192):
        batch = collate(MicroBatch(part, np.ones(len(part), np.float32)))
        hidden_BTD = model.encode(batch)
        trained_NL[part] = model.head(hidden_BTD, batch.mask_BT).numpy()
        for name, (table, _) in tables.items():
            table[ids_U] = rows[name].view(-1, *table.shape[1:]).to(table.dtype)
        named_NU[part] = model.head(hidden_BTD, batch.mask_BT, ids_U).numpy()
        for table, before in tables.values():
            table.copy_(before)
    named_NL = trained_NL.copy()
    named_NL[:, unseen_L] = named_NU
    return trained_NL, named_NL


def measure(
    logits_NL: NDArray[np.float32],
    gold_NL: NDArray[np.bool_],
    unseen_L: NDArray[np.bool_],
) -> dict[str, float]:
    """The figures of one line."""
    some_N = gold_NL[:, unseen_L].any(1)
    scores_XU, gold_XU = logits_NL[some_N][:, unseen_L], gold_NL[some_N][:, unseen_L]
    best_X5 = np.argsort(-scores_XU, axis=1, kind="stable")[:, :5]
    found_X5 = np.take_along_axis(gold_XU, best_X5, 1)
    present = np.flatnonzero(gold_NL.any(0) & unseen_L)
    top_N5 = np.argsort(-logits_NL, axis=1, kind="stable")[:, :5]
    return {
        "unseen_labels": int(unseen_L.sum()),
        "documents_with_one": int(some_N.sum()),
        "p@1_unseen": float(found_X5[:, 0].mean()),
        "r@5_unseen": float((found_X5.sum(1) / gold_XU.sum(1)).mean()),
        "auc_unseen": float(
            np.mean(
                [
                    roc_auc_score(gold_NL[:, label], logits_NL[:, label])
                    for label in present
                ]
            )
        ),
        "ndcg@5_all": float(ndcg_score(gold_NL, logits_NL, k=5)),
        "unseen_in_top5": float(unseen_L[top_N5].mean()),
    }


if __name__ == "__main__":
    main()
