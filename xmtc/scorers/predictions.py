"""The best-scored labels of many documents, as two rectangular arrays.

Shapes: N documents, K kept predictions, L labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logit

from xmtc.data.readers.base import quoted_cell
from xmtc.errors import DataError

Gold = sparse.csr_array
"""Labels of documents: boolean (N, L)."""

_ROWS_AT_ONCE = 1 << 16
"""Number of documents whose predictions are checked at once."""
_SCRATCH_BYTES = 1 << 25
"""Size of the block in which `match` looks predictions up."""
_EDGE = 1e-7
"""Probabilities of float32 that are nearer to 0 or 1 than this have lost their logit."""


def shape_of(matrix: sparse.csr_array) -> tuple[int, int]:
    """Return (rows, columns); SciPy's type stubs do not promise two."""
    rows, columns = matrix.shape or (0, 0)
    return int(rows), int(columns)


@dataclass(frozen=True)
class SparsePredictions:
    """Each document's K best labels by a scorer, a fusion or a model.

    Attributes:
        label_ids_NK: int32, best first, no label twice in a row; -1 pads rows that hold fewer.
        scores_NK: float32, descending along a row, probabilities but for a single scorer; ignored if the label id is
            -1.
    """

    label_ids_NK: NDArray[np.int32]
    scores_NK: NDArray[np.float32]

    def __post_init__(self) -> None:
        if (
            self.label_ids_NK.shape != self.scores_NK.shape
            or self.label_ids_NK.ndim != 2
        ):
            shapes = (
                f"label ids {self.label_ids_NK.shape}, scores {self.scores_NK.shape}"
            )
            raise DataError(f"predictions: {shapes}; the two must be equal, (N, K)")

    def __len__(self) -> int:
        return len(self.label_ids_NK)

    def top(self, k: int) -> "SparsePredictions":
        """Keep the first k of each row, as views."""
        return SparsePredictions(self.label_ids_NK[:, :k], self.scores_NK[:, :k])

    def take(self, rows_M: NDArray[np.int64] | slice) -> "SparsePredictions":
        """Select the predictions for some documents."""
        return SparsePredictions(self.label_ids_NK[rows_M], self.scores_NK[rows_M])

    def only(self, wanted_L: NDArray[np.bool_]) -> "SparsePredictions":
        """Drop the labels that are not wanted."""
        is_wanted_NK = (self.label_ids_NK >= 0) & wanted_L[self.label_ids_NK]
        ids_NK = np.where(is_wanted_NK, self.label_ids_NK, -1)
        return SparsePredictions(ids_NK, self.scores_NK).sorted_by(ids_NK < 0)

    def without(self, unjudged: sparse.csr_array | None) -> "SparsePredictions":
        """Drop the labels that nobody judged for a document, so that they count neither as right nor as wrong.

        Args:
            unjudged: boolean (N, L); None if every label was judged.
        """
        if unjudged is None:
            return self
        _, labels = shape_of(unjudged)
        rows, columns = unjudged.nonzero()
        unjudged_keys = rows.astype(np.int64) * labels + columns
        keys_NK = np.arange(len(self))[:, None] * labels + self.label_ids_NK
        drop_NK = (self.label_ids_NK < 0) | np.isin(keys_NK, unjudged_keys)
        return SparsePredictions(
            np.where(drop_NK, -1, self.label_ids_NK), self.scores_NK
        ).sorted_by(drop_NK)

    def sorted_by(self, keys_NK: NDArray[Any]) -> "SparsePredictions":
        """Order each row by ascending keys."""
        order_NK = np.argsort(keys_NK, axis=1, kind="stable")
        ids_NK = np.take_along_axis(self.label_ids_NK, order_NK, 1)
        scores_NK = np.take_along_axis(self.scores_NK, order_NK, 1)
        return SparsePredictions(ids_NK, scores_NK)

    def check(
        self,
        labels: int,
        doc_ids: Sequence[str] | None = None,
        source: str = "predictions",
    ) -> None:
        """Refuse label ids beyond `labels`, scores that are no probabilities or not descending, repeated labels.

        Args:
            labels: L.
            doc_ids: N ids, to call documents by; without them by row number.
            source: where the predictions are from, for the message.

        Raises:
            DataError: names the first document and what is wrong with it.
        """
        for start in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            problem = _problem(self.label_ids_NK[rows], self.scores_NK[rows], labels)
            if problem is not None:
                row_of_block, description = problem
                row = start + row_of_block
                document = (
                    f"row {row}"
                    if doc_ids is None
                    else f"document {quoted_cell(doc_ids[row])}"
                )
                raise DataError(f"{source}: {document} has {description}")


def _problem(
    ids_BK: NDArray[np.int32], scores_BK: NDArray[np.float32], labels: int
) -> tuple[int, str] | None:
    """Find the first bad row and its problem; None if there is none."""
    used = ids_BK >= 0
    ordered = np.sort(ids_BK, axis=1)
    is_probability = (scores_BK >= 0) & (scores_BK <= 1)
    rises = ~(scores_BK[:, 1:] <= scores_BK[:, :-1]) & used[:, 1:]
    problems = {
        f"a label id outside 0…{labels - 1}": (ids_BK >= labels) | (ids_BK < -1),
        "a score outside 0…1: give probabilities": used & ~is_probability,
        "scores that are not best first": rises,
        "the same label twice": (ordered[:, 1:] == ordered[:, :-1])
        & (ordered[:, 1:] >= 0),
        "a prediction behind padding": used[:, 1:] & ~used[:, :-1],
    }
    for description, is_wrong in problems.items():
        is_wrong_B = is_wrong.any(axis=1)
        if is_wrong_B.any():
            return int(is_wrong_B.argmax()), description
    return None


def logits_of(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Recover logits from probabilities of float32."""
    return logit(np.clip(scores.astype(np.float64), _EDGE, 1 - _EDGE))


def without(matrix: sparse.csr_array, part: sparse.csr_array) -> sparse.csr_array:
    """Return a matrix of ones without those of another matrix."""
    rest = sparse.csr_array(matrix - part)
    rest.eliminate_zeros()
    return rest


def match(label_ids_NK: NDArray[np.int32], gold: Gold) -> NDArray[np.bool_]:
    """Mark the predictions that are right.

    Looks them up in a boolean scratch block of some documents at a time, 32 MiB large whatever N and L.

    Args:
        label_ids_NK: int32 (N, K), -1 padding.
        gold: boolean (N, L).

    Returns:
        Boolean (N, K); padding is False.
    """
    documents, labels = shape_of(gold)
    hits_NK = np.empty(label_ids_NK.shape, np.bool_)
    # One more column than labels: id -1 then reads the unused column of the row before, which is always False.
    width = labels + 1
    block = max(1, min(_SCRATCH_BYTES // width, documents))
    scratch = np.zeros(block * width, np.bool_)
    for start in range(0, documents, block):
        stop = min(start + block, documents)
        ends = gold.indptr[start : stop + 1]
        offsets = np.arange(stop - start, dtype=np.int64) * width
        gold_positions = (
            np.repeat(offsets, np.diff(ends)) + gold.indices[ends[0] : ends[-1]]
        )
        predicted_positions = label_ids_NK[start:stop] + offsets[:, None]
        scratch[gold_positions] = True
        np.take(scratch, predicted_positions, out=hits_NK[start:stop], mode="wrap")
        scratch[gold_positions] = False
    return hits_NK


def as_matrix(
    predictions: SparsePredictions, chosen_NK: NDArray[np.bool_], labels: int
) -> sparse.csr_array:
    """Convert the chosen predictions to a float32 matrix of ones (N, L)."""
    indptr = np.zeros(len(predictions) + 1, np.int64)
    np.cumsum(np.count_nonzero(chosen_NK, axis=1), out=indptr[1:])
    indices = predictions.label_ids_NK[chosen_NK]
    ones = np.ones(len(indices), np.float32)
    return sparse.csr_array((ones, indices, indptr), shape=(len(predictions), labels))
