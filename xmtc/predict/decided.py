"""A model's predictions and decisions in the label ids of another table.

Suffixes: N documents, K kept predictions, L labels of the table, M of the model.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from xmtc.data.labels import LabelTable
from xmtc.evaluate.flips import Decisions
from xmtc.predict.request import Request
from xmtc.predict.text_scorer import TextScorer
from xmtc.scorers.predictions import SparsePredictions


def decided(
    scorer: TextScorer,
    batches: Iterable[Sequence[str]],
    labels: LabelTable,
    known_L: NDArray[np.bool_],
    top_k: int,
) -> Decisions:
    """Predict the labels of texts, at least one.

    Args:
        scorer: scorer of the model.
        batches: texts, some at a time.
        labels: the table.
        known_L: the labels of the table that may be in the answer.
        top_k: K, if it is more than the labels from which a decision says what to expect.

    Returns:
        The predictions, and which of them the model's decision makes, (N, K).
    """
    ids_M = np.array(
        [
            labels.index(label) if label in labels else -1
            for label in scorer.labels.labels
        ],
        np.int32,
    )
    ids_M[~known_L[ids_M]] = -1
    label_ids, scores, made = [], [], []
    for texts in batches:
        answer = scorer.score(scorer.tokenise(texts), Request(top_k=top_k))
        own_NK = answer.label_ids_NK
        ids_NK = np.where(own_NK >= 0, ids_M[own_NK], -1)
        made_NK = scorer.decision.chosen(own_NK, answer.scores_NK) & (ids_NK >= 0)
        # Labels that the table lacks go to the end, as padding; the others keep their order.
        order_NK = np.argsort(ids_NK < 0, axis=1, kind="stable")
        label_ids.append(np.take_along_axis(ids_NK, order_NK, 1))
        scores.append(np.take_along_axis(answer.scores_NK, order_NK, 1))
        made.append(np.take_along_axis(made_NK, order_NK, 1))
    return SparsePredictions(
        np.concatenate(label_ids), np.concatenate(scores)
    ), np.concatenate(made)
