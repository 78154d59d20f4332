"""The table with one row per label.

Shapes: N documents, K kept predictions, L labels.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.labels import LabelTable
from xmtc.evaluate.judged import Judged
from xmtc.scorers.predictions import as_matrix, shape_of, without

_BLOCK = 1 << 16
_FALSE_PER_DOCUMENT = 5


def per_label_table(
    labels: LabelTable, judged: Judged, confused: pa.ListArray
) -> pa.Table:
    """Make a table with one row per label, in label-id order.

    Args:
        labels: label table.
        judged: predictions and the truth.
        confused: per label, the ids of the labels most confused with it.

    Returns:
        Columns label, name, train_count, support, tp, fp, fn, precision, recall, f1, average_precision, confused_with.
        precision is null without predictions, recall and average_precision without gold documents, f1 without either.
    """
    tp_L = judged.outcome.right_L
    predicted_L = judged.outcome.predicted_L
    support_L = judged.outcome.gold_L
    label = pa.array(labels.labels, pa.string())
    same_names = labels.names is labels.labels
    columns = {
        "label": label,
        "name": label if same_names else pa.array(labels.names, pa.string()),
        "train_count": pa.array(labels.train_counts, pa.int64()),
        "support": pa.array(support_L, pa.int64()),
        "tp": pa.array(tp_L, pa.int64()),
        "fp": pa.array(predicted_L - tp_L, pa.int64()),
        "fn": pa.array(support_L - tp_L, pa.int64()),
        "precision": _share(tp_L, predicted_L),
        "recall": _share(tp_L, support_L),
        "f1": _share(2 * tp_L, predicted_L + support_L),
        "average_precision": pa.array(
            judged.average_precision_L, pa.float64(), from_pandas=True
        ),
        "confused_with": pa.ListArray.from_arrays(
            confused.offsets, label.take(confused.values)
        ),
    }
    return pa.table(columns)


def _share(part_L: NDArray[np.integer], whole_L: NDArray[np.integer]) -> pa.Array:
    """Divide; null where the whole is 0."""
    shares_L = part_L / np.maximum(whole_L, 1)
    return pa.array(shares_L, pa.float64(), mask=whole_L == 0)


def most_confused(judged: Judged, k: int) -> pa.ListArray:
    """Find per label the k labels that are most often wrongly predicted on documents whose label was missed.

    Only a document's five best wrong predictions count, which bounds the work.

    Returns:
        L lists of label ids, int32, most often first, at most k long.
    """
    documents, labels = shape_of(judged.gold)
    counts = sparse.csr_array((labels, labels), dtype=np.float32)
    for start in range(0, documents, _BLOCK):
        rows = slice(start, start + _BLOCK)
        wrong_BK = judged.chosen_NK[rows] & ~judged.hits_NK[rows]
        wrong_BK &= np.cumsum(wrong_BK, axis=1, dtype=np.int32) <= _FALSE_PER_DOCUMENT
        missed = without(judged.outcome.gold[rows], judged.outcome.right[rows])
        predicted = as_matrix(judged.predictions.take(rows), wrong_BK, labels)
        counts = counts + sparse.csr_array(missed.T) @ predicted
    return _top_columns(sparse.csr_array(counts), k)


def _top_columns(counts: sparse.csr_array, k: int) -> pa.ListArray:
    """List the columns of the k greatest counts of each row, greatest first; the smaller of equal columns first."""
    lengths_L = np.diff(counts.indptr)
    rows = np.repeat(np.arange(len(lengths_L)), lengths_L)
    greatest_first = np.lexsort((counts.indices, np.negative(counts.data), rows))
    places = np.arange(len(rows)) - counts.indptr[rows]
    columns = counts.indices[greatest_first][places < k]
    offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths_L, k))])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(columns, pa.int32())
    )
