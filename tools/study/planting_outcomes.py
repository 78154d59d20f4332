"""What a run of the planting study predicted, small enough to commit: intervals can be computed again from it.

A line holds, for every measured document, which of its gold labels were predicted, which others were predicted, and
which of the five best labels are right.

Suffixes: N documents, K predictions, L labels, G gold labels of all documents.
"""

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.evaluate.classification import Outcome
from xmtc.evaluate.judged import discounts, ideal_gains
from xmtc.evaluate.metrics import Ratio
from xmtc.fusion.decision import Decision
from xmtc.scorers.predictions import SparsePredictions, match

AT = 5
_BITS = 1 << np.arange(AT)


def pack(array: NDArray[np.generic]) -> str:
    """Bytes of an array, compressed, as text."""
    return base64.b85encode(
        zlib.compress(np.ascontiguousarray(array).tobytes(), 9)
    ).decode("ascii")


def unpack(text: str, dtype: type[np.generic]) -> NDArray[Any]:
    """What `pack` was given, flat."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype)


@dataclass(frozen=True)
class Gold:
    """The measured documents' labels.

    Attributes:
        labels_NL: boolean.
        counts_L: training documents of each label.
    """

    labels_NL: sparse.csr_array
    counts_L: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return {
            "gold": True,
            "labels": len(self.counts_L),
            "per_document": pack(np.diff(self.labels_NL.indptr).astype(np.uint16)),
            "ids": pack(self.labels_NL.indices.astype(np.uint16)),
            "train_counts": pack(self.counts_L.astype(np.uint32)),
        }

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> "Gold":
        """From what `to_json` gave."""
        starts = np.concatenate(
            [[0], np.cumsum(unpack(line["per_document"], np.uint16), dtype=np.int64)]
        )
        ids = unpack(line["ids"], np.uint16).astype(np.int32)
        shape = (len(starts) - 1, line["labels"])
        matrix = sparse.csr_array(
            (np.ones(len(ids), np.bool_), ids, starts), shape=shape
        )
        return cls(matrix, unpack(line["train_counts"], np.uint32).astype(np.int64))


@dataclass(frozen=True)
class Predicted:
    """One system's decisions on the measured documents.

    Attributes:
        right_G: which gold labels were predicted, in the order of the gold matrix.
        wrong_NL: boolean, other labels that were predicted.
        best_N: uint8, bit k says whether the label at rank k + 1 is right.
    """

    right_G: NDArray[np.bool_]
    wrong_NL: sparse.csr_array
    best_N: NDArray[np.uint8]

    @classmethod
    def of(
        cls, predictions: SparsePredictions, gold: Gold, decision: Decision
    ) -> "Predicted":
        """Labels by a decision."""
        hits_NK = match(predictions.label_ids_NK, gold.labels_NL)
        chosen_NK = decision.chosen(predictions.label_ids_NK, predictions.scores_NK)
        rows, columns = np.nonzero(chosen_NK & hits_NK)
        found = sparse.csr_array(
            (
                np.ones(len(rows), np.bool_),
                (rows, predictions.label_ids_NK[rows, columns]),
            ),
            shape=gold.labels_NL.shape,
        )
        gold_rows = np.repeat(np.arange(len(hits_NK)), np.diff(gold.labels_NL.indptr))
        right_G = (
            np.asarray(found[gold_rows, gold.labels_NL.indices])
            .ravel()
            .astype(np.bool_)
        )
        rows, columns = np.nonzero(chosen_NK & ~hits_NK)
        ids = predictions.label_ids_NK[rows, columns]
        wrong = sparse.csr_array(
            (np.ones(len(ids), np.bool_), (rows, ids)), shape=gold.labels_NL.shape
        )
        best_N = (hits_NK[:, :AT] * _BITS[: hits_NK.shape[1]]).sum(1).astype(np.uint8)
        return cls(right_G, wrong, best_N)

    def to_json(self) -> dict[str, str]:
        """As `from_json` reads it."""
        return {
            "right": pack(np.packbits(self.right_G)),
            "wrong_per_document": pack(np.diff(self.wrong_NL.indptr).astype(np.uint16)),
            "wrong": pack(self.wrong_NL.indices.astype(np.uint16)),
            "best": pack(self.best_N),
        }

    @classmethod
    def from_json(cls, line: dict[str, str], gold: Gold) -> "Predicted":
        """From what `to_json` gave."""
        right_G = np.unpackbits(
            unpack(line["right"], np.uint8), count=gold.labels_NL.nnz
        ).astype(np.bool_)
        starts = np.concatenate(
            [
                [0],
                np.cumsum(
                    unpack(line["wrong_per_document"], np.uint16), dtype=np.int64
                ),
            ]
        )
        ids = unpack(line["wrong"], np.uint16).astype(np.int32)
        wrong = sparse.csr_array(
            (np.ones(len(ids), np.bool_), ids, starts), shape=gold.labels_NL.shape
        )
        return cls(right_G, wrong, unpack(line["best"], np.uint8))

    def outcome(self, gold: Gold) -> Outcome:
        """Predicted, right and gold labels as the project's metrics read them."""
        every = sparse.csr_array(gold.labels_NL, dtype=np.float32)
        right = every.copy()  # eliminating zeros changes indices in place
        right.data = self.right_G.astype(np.float32)
        right.eliminate_zeros()
        return Outcome(
            sparse.csr_array(right + self.wrong_NL.astype(np.float32)), right, every
        )

    def ratios(self, gold: Gold) -> dict[str, Ratio]:
        """P@1 and nDCG@5."""
        hits_NK = (self.best_N[:, None] & _BITS) > 0
        counts_N = np.diff(gold.labels_NL.indptr)
        gains_N = hits_NK @ discounts(AT) / ideal_gains(AT, np.maximum(counts_N, 1))
        some_N = (counts_N > 0).astype(np.float32)
        return {
            "p@1": Ratio(
                hits_NK[:, 0].astype(np.float32), np.ones(len(hits_NK), np.float32)
            ),
            "ndcg@5": Ratio(gains_N.astype(np.float32), some_N),
        }


def dumps(line: dict[str, Any]) -> str:
    """A JSON line."""
    return json.dumps(line, separators=(",", ":")) + "\n"
