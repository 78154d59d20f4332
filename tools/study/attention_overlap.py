"""Measure the share of attention on a label's most informative tokens, and compare it with chance."""

import numpy as np
import torch

from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.models.heads.base import AttendsByLabel
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.stages.worker import Worker

DOCUMENTS = 200
TOP_TOKENS = 100


@torch.no_grad()
def attention_overlap(worker: Worker, ranking: TokenRanking) -> dict[str, float]:
    """Compute means over (document, positive label) pairs of dev, and the number of `pairs`. Collective.

    `attention` is the share of attention on the label's `TOP_TOKENS` best tokens in the ranking. `chance` is the share
    of such tokens in the document, which uniform attention would give.
    """
    values = np.zeros(ranking.k + 1, np.float32)
    values[:TOP_TOKENS] = 1
    table = ranking.table(len(worker.tokenizer), values)
    classifier, tokens = (
        worker.classifier.eval(),
        worker.config.plant.tokens_per_micro_batch,
    )
    head = classifier.head
    assert isinstance(head, AttendsByLabel)
    sums = np.zeros(3)
    for _, batch in worker.batches.read(worker.dev, tokens, DOCUMENTS):
        known_P = torch.from_numpy(ranking.counts > 0).to(batch.labels_P.device)[
            batch.labels_P
        ]
        rows_P, labels_P = batch.rows_P[known_P], batch.labels_P[known_P]
        labels_S, columns_P = labels_P.unique(return_inverse=True)
        hidden_BTD = classifier.encode(
            batch
        )  # equally often on every rank: weights may be partitioned
        if len(labels_S) == 0:
            continue
        attention_BSHT = head.attention(hidden_BTD, batch.mask_BT, labels_S)
        top_SV = torch.from_numpy(table(labels_S.cpu().numpy()).copy()).to(
            attention_BSHT.device
        )
        top_PT = (
            top_SV[columns_P[:, None], batch.token_ids_BT[rows_P]]
            * batch.mask_BT[rows_P]
        )
        weight_P = batch.weight_B[rows_P]
        attention_P = (attention_BSHT[rows_P, columns_P].mean(1) * top_PT).sum(1)
        chance_P = top_PT.sum(1) / batch.mask_BT[rows_P].sum(1)
        sums += [
            float((attention_P * weight_P).sum()),
            float((chance_P * weight_P).sum()),
            float(weight_P.sum()),
        ]
    attention, chance, pairs = all_reduce_sum_floats(sums.tolist())
    return {
        "attention": attention / max(pairs, 1),
        "chance": chance / max(pairs, 1),
        "pairs": int(pairs),
    }
