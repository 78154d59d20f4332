"""Second step of preparation: choose the documents of each split, and the labels, without reading texts.

N documents, L labels.
"""

import logging
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.config import DataConfig, SplitConfig
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import SPLITS, LabelInfo, quoted_cell, quoted_label
from xmtc.data.readers.cells import near_pairs
from xmtc.data.spool import Spool
from xmtc.errors import DataError

logger = logging.getLogger(__name__)

_TRAIN, _DEV, _TEST = range(3)
_WHOLE_FLOAT = re.compile(r"-?\d+\.0")
"""If all labels look so, they are integers of a column with gaps that pandas wrote to CSV."""


@dataclass(frozen=True)
class Selection:
    """The documents and labels of the corpus.

    Attributes:
        rows: split -> int64 sorted rows of the spool.
        labels: the label table.
        label_matrix: True where a document of the spool has a label of the table, boolean (N, L).
        duplicates, over_limit, dropped_labels, without_labels: as in `Counts`.
    """

    rows: dict[str, NDArray[np.int64]]
    labels: LabelTable
    label_matrix: sparse.csr_array
    duplicates: int
    over_limit: int
    dropped_labels: int
    without_labels: int


def select(spool: Spool, info: LabelInfo, provides: frozenset[str], settings: DataConfig) -> Selection:
    """Choose the documents of each split, and the labels.

    Args:
        spool: the documents.
        info: names and parents of labels.
        provides: splits that the source is known to have, apart from those that its documents name.
        settings: how to divide, how many documents to take, what to do with duplicates, rare labels and documents
            without labels, and whether a document must have exactly one label (without it, it is dropped).

    Raises:
        DataError: no training documents, no labels among them, or just one if they exclude each other.
    """
    hashes, own = spool.hashes, spool.splits
    provides |= {SPLITS[i] for i in np.unique(own[own >= 0])}
    of_row = _divide(own, hashes, provides, settings.split)
    rows = {name: np.flatnonzero(of_row == i) for i, name in enumerate(SPLITS)}
    limited = {
        name: _limited(part, hashes, getattr(settings.limit, name), settings.split.seed) for name, part in rows.items()
    }
    over_limit = sum(len(rows[name]) - len(limited[name]) for name in SPLITS)
    taken = ("train",) if "dev" in provides else ("train", "dev")  # whose documents scorers may be fitted on
    known = {"dev": hashes[limited["train"]], "test": hashes[np.concatenate([limited[name] for name in taken])]}
    repeats = {n: np.isin(hashes[limited[n]], known[n]) for n in SPLITS[1:]}
    repeated = int(sum(mask.sum() for mask in repeats.values()))
    if settings.duplicates == "drop":
        limited |= {name: limited[name][~mask] for name, mask in repeats.items()}
    if len(limited["train"]) == 0:
        rejected = f" ({spool.rejected} rows were bad, the first: {spool.first_rejected})" if spool.rejected else ""
        raise DataError(
            f"no training documents among the {len(hashes)} documents read{rejected}; see data.source and data.split"
        )
    table, matrix_NL, dropped = _label_table(spool, limited, info, settings.min_label_documents)
    bare_N = np.diff(matrix_NL.indptr) == 0
    without = spool.dropped_bare + sum(int(bare_N[part].sum()) for part in limited.values())
    if settings.one_label:
        _check_several(table)
    if settings.one_label or settings.without_labels == "drop":
        limited = {name: part[~bare_N[part]] for name, part in limited.items()}
    kept = {name: part for name, part in limited.items() if len(part)}
    return Selection(kept, table, matrix_NL, repeated, over_limit, dropped, without)


def _divide(
    own: NDArray[np.int8], hashes: NDArray[np.uint64], provides: frozenset[str], split: SplitConfig
) -> NDArray[np.int8]:
    """Assign every document to a split, (N,). Equal texts go to the same split; at least one text goes to dev."""
    place = _mix(hashes, 2 * split.seed) / 2.0**64
    first = np.nextafter(place[own < _DEV].min(initial=1.0), 1.0)
    dev = 0.0 if "dev" in provides or not split.dev else max(split.dev, first)
    test = 0.0 if provides & {"dev", "test"} else split.test
    divided = np.where(place < dev, _DEV, np.where(place < dev + test, _TEST, _TRAIN))
    return np.where((own == _DEV) | (own == _TEST), own, divided).astype(np.int8)


def _limited(rows: NDArray[np.int64], hashes: NDArray[np.uint64], most: int | None, seed: int) -> NDArray[np.int64]:
    if most is None or len(rows) <= most:
        return rows
    return np.sort(rows[np.argsort(_mix(hashes[rows], 2 * seed + 1), kind="stable")[:most]])


def _mix(hashes: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """Hash the hashes with the splitmix64 finaliser: every salt gives another, independent-looking order."""
    with np.errstate(over="ignore"):
        mixed = hashes + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def _label_table(
    spool: Spool, rows: dict[str, NDArray[np.int64]], info: LabelInfo, least: int
) -> tuple[LabelTable, sparse.csr_array, int]:
    """Make the chosen documents' label table, the documents' labels in it, and the number of dropped labels."""
    matrix, every = spool.label_matrix, spool.labels
    if not info.names and all(_WHOLE_FLOAT.fullmatch(label) for label in every):
        every = [label.removesuffix(".0") for label in every]
    counts = {name: np.bincount(matrix[part].indices, minlength=len(every)) for name, part in rows.items()}
    train = counts["train"]
    rare = (train > 0) & (train < least)
    kept = np.flatnonzero((sum(counts.values()) > 0) & ~rare)
    ids = sorted(kept.tolist(), key=lambda provisional: every[provisional])
    if not train[ids].any():
        why = f"no label has {least} training documents" if rare.any() else "the training documents have no labels"
        raise DataError(f"{why}; see data.min_label_documents and data.source")
    matrix = matrix[:, ids]
    matrix.sort_indices()
    labels = [every[i] for i in ids]
    if pairs := near_pairs((label for label in labels if label not in info.names), info.names):
        what = f"{quoted_label(pairs[0][1])} is not, but {quoted_label(pairs[0][0])} is"
        logger.warning("%d labels have no name, but one like them is in the label file: %s", len(pairs), what)
    parents = [info.parents.get(label, ()) for label in labels] if info.parents else None
    names = [info.names.get(label, label) for label in labels]
    others = [info.alternatives.get(label, ()) for label in labels] if info.alternatives else None
    translations = {
        language: [given.get(label, "") for label in labels] for language, given in sorted(info.translations.items())
    }
    table = LabelTable(labels, names, train[ids], parents, others, translations)
    return table, matrix, int(rare.sum())


def _check_several(table: LabelTable) -> None:
    trained = np.flatnonzero(table.train_counts)
    if len(trained) == 1:
        label = quoted_cell(table.labels[trained[0]])
        raise DataError(
            f"data.task: single_label, but every training document has the label {label}: there is "
            "nothing to tell apart; see data.source and data.min_label_documents"
        )
