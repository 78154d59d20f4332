"""A model's predictions and decisions in the label ids of another table.

Suffixes: N documents, K kept predictions, L labels of the table, M of the model.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from xmtc.data.labels import LabelTable
from xmtc.evaluate.flips import Decisions
from xmtc.predict.predictor import Model
from xmtc.scorers.predictions import SparsePredictions


def decided(
    model: Model, batches: Iterable[Sequence[str]], labels: LabelTable, known_L: NDArray[np.bool_], top_k: int
) -> Decisions:
    """Predict the labels of texts, at least one.

    Args:
        model: the model.
        batches: texts, some at a time.
        labels: the table.
        known_L: the labels of the table that may be in the answer.
        top_k: see `Model.best`.

    Returns:
        The predictions, and those that the model makes, (N, K).
    """
    ids_M = np.array([labels.index(label) if label in labels else -1 for label in model.labels.labels], np.int32)
    ids_M[~known_L[ids_M]] = -1
    parts = []
    for texts in batches:
        own_NK, scores_NK = model.best(texts, top_k)
        ids_NK, made_NK = np.where(own_NK >= 0, ids_M[own_NK], -1), model.decision.chosen(own_NK, scores_NK)
        order_NK = np.argsort(ids_NK < 0, axis=1, kind="stable")
        parts.append(
            [np.take_along_axis(array_NK, order_NK, 1) for array_NK in (ids_NK, scores_NK, made_NK & (ids_NK >= 0))]
        )
    ids_NK, scores_NK, made_NK = (np.concatenate(part) for part in zip(*parts, strict=True))
    return SparsePredictions(ids_NK, scores_NK), made_NK
