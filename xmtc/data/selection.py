"""Second step of preparation: choose the documents of each split, and the labels, without reading texts.

N documents, L labels.
"""

import logging
import re
from collections.abc import Collection, Mapping
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

Rows = NDArray[np.int64]
_TRAIN, _DEV, _TEST = range(3)
"""Places in `SPLITS`."""
_NOWHERE = -1
"""The place of documents that are left out."""
_WHOLE_FLOAT = re.compile(r"-?\d+\.0")
"""If all labels look so, they are integers of a column with gaps that pandas wrote to CSV."""


@dataclass(frozen=True)
class Selection:
    """The documents and labels of the corpus.

    Attributes:
        rows: split -> int64 sorted rows of the spool.
        labels: the label table.
        label_matrix: True where a document of the spool has a label of the table, boolean (N, L).
        unjudged_matrix: True where nobody judged whether it has, boolean (N, L); None if every label was judged.
        duplicates, over_limit, dropped_labels, unused_labels, without_labels, added, replaced: as in `Counts`.
    """

    rows: dict[str, Rows]
    labels: LabelTable
    label_matrix: sparse.csr_array
    unjudged_matrix: sparse.csr_array | None
    duplicates: int
    over_limit: int
    dropped_labels: int
    unused_labels: int
    without_labels: int
    added: int
    replaced: int


def select(
    spool: Spool, info: LabelInfo, provides: frozenset[str], settings: DataConfig
) -> Selection:
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
    hashes = spool.hashes
    chosen = choose_rows(
        SourceRows(spool.splits, hashes, spool.is_added, spool.replaced_rows),
        provides,
        settings,
    )
    rows = chosen.rows
    if len(rows["train"]) == 0:
        rejected = (
            f" ({spool.rejected} rows were bad, the first: {spool.first_rejected})"
            if spool.rejected
            else ""
        )
        raise DataError(
            f"no training documents among the {len(hashes)} documents read{rejected}; see data.source and data.split"
        )

    table, label_ids, dropped_labels = _label_table(
        spool, rows, info, settings.min_label_documents
    )
    matrix_NL = spool.label_matrix[:, label_ids]
    matrix_NL.sort_indices()
    if settings.one_label:
        _check_several(table)
    unlabelled_N = np.diff(matrix_NL.indptr) == 0
    unlabelled = sum(int(unlabelled_N[part].sum()) for part in rows.values())
    if settings.one_label or settings.without_labels == "drop":
        rows = {name: part[~unlabelled_N[part]] for name, part in rows.items()}
    return Selection(
        rows={name: part for name, part in rows.items() if len(part)},
        labels=table,
        label_matrix=matrix_NL,
        unjudged_matrix=spool.unjudged_matrix(label_ids),
        duplicates=chosen.duplicates,
        over_limit=chosen.over_limit,
        dropped_labels=dropped_labels,
        unused_labels=len(info.names.keys() - set(table.labels)),
        without_labels=spool.dropped_bare + unlabelled,
        added=int(spool.is_added.sum()),
        replaced=len(spool.replaced_rows),
    )


@dataclass(frozen=True)
class SourceRows:
    """What decides the split of the documents of a source.

    Attributes:
        splits: int8 (N,) the split that the source says, as a place in `SPLITS`; -1 where it says none.
        hashes: uint64 (N,) of the texts.
        is_added: boolean (N,) documents that were added to the others for training.
        replaced: rows that are left out, because an added document has the same text.
    """

    splits: NDArray[np.int8]
    hashes: NDArray[np.uint64]
    is_added: NDArray[np.bool_]
    replaced: Collection[int]


@dataclass(frozen=True)
class ChosenRows:
    """The documents of each split.

    Attributes:
        rows: split -> int64 sorted rows; all splits are there, some may be empty.
        duplicates, over_limit: as in `Counts`.
    """

    rows: dict[str, Rows]
    duplicates: int
    over_limit: int


def choose_rows(
    source: SourceRows, provides: frozenset[str], settings: DataConfig
) -> ChosenRows:
    """Choose the documents of each split, before those without labels are left out.

    Args:
        source: splits and texts of all documents.
        provides: see `select`.
        settings: see `select`.
    """
    named = np.unique(source.splits[source.splits >= 0])
    provides |= {SPLITS[number] for number in named}
    split_N = divide_documents(
        source.splits, source.hashes, provides, settings.split, source.is_added
    )
    split_N[list(source.replaced)] = _NOWHERE
    all_rows = {
        name: np.flatnonzero(split_N == number) for number, name in enumerate(SPLITS)
    }
    limits = limits_of(settings)
    rows = {
        name: _limited(all_rows[name], source.hashes, limits[name], settings.split.seed)
        for name in SPLITS
    }
    over_limit = sum(len(all_rows[name]) - len(rows[name]) for name in SPLITS)
    repeated = _repeated_texts(rows, source.hashes, provides)
    if settings.duplicates == "drop":
        for name, repeated_mask in repeated.items():
            rows[name] = rows[name][~repeated_mask]
    duplicates = sum(int(repeated_mask.sum()) for repeated_mask in repeated.values())
    return ChosenRows(rows, duplicates, over_limit)


def shares_to_divide(
    provides: frozenset[str], split: SplitConfig
) -> tuple[float, float]:
    """Return the shares of the documents without a split of their own that go to dev and to test.

    A source that has dev keeps all others in train. A source that has test, but no dev, gives some to dev alone.

    Args:
        provides: splits that the source has.
        split: shares as configured.
    """
    dev = 0.0 if "dev" in provides else split.dev
    test = 0.0 if provides & {"dev", "test"} else split.test
    return dev, test


def limits_of(settings: DataConfig) -> dict[str, int | None]:
    """Return the maximum number of documents of each split, None where there is none."""
    return {
        "train": settings.limit.train,
        "dev": settings.limit.dev,
        "test": settings.limit.test,
    }


def expected_rows(
    counts: Mapping[str | None, int], provides: frozenset[str], settings: DataConfig
) -> dict[str, int]:
    """Estimate how many documents each split gets, from counts alone; splits without documents are left out.

    Args:
        counts: documents by the split that the source gives them; None: it gives none.
        provides: see `select`.
        settings: see `select`.
    """
    provides |= {split for split in counts if split is not None}
    dev_share, test_share = shares_to_divide(provides, settings.split)
    to_divide = counts.get("train", 0) + counts.get(None, 0)
    to_dev = round(to_divide * dev_share)
    to_test = round(to_divide * test_share)
    divided = {
        "train": to_divide - to_dev - to_test,
        "dev": counts.get("dev", 0) + to_dev,
        "test": counts.get("test", 0) + to_test,
    }
    limits = limits_of(settings)
    return {
        name: min(rows, limits[name] or rows) for name, rows in divided.items() if rows
    }


def divide_documents(
    source_splits: NDArray[np.int8],
    hashes: NDArray[np.uint64],
    provides: frozenset[str],
    split: SplitConfig,
    is_added: NDArray[np.bool_],
) -> NDArray[np.int8]:
    """Assign every document to a split, (N,). Equal texts go to the same split; at least one text goes to dev.

    Args:
        source_splits: (N,) the split that the source says, as a place in `SPLITS`; -1 where it says none.
        hashes: (N,) of the texts.
        provides: splits that the source has.
        split: shares of dev and test.
        is_added: (N,) documents that stay in train unless they say otherwise themselves.
    """
    place = _mix(hashes, 2 * split.seed) / 2.0**64
    dev, test = shares_to_divide(provides, split)
    if dev:
        to_divide = (source_splits < _DEV) & ~is_added
        first_place = place[to_divide].min(initial=1.0)
        dev = max(dev, np.nextafter(first_place, 1.0))
    divided = np.where(place < dev, _DEV, np.where(place < dev + test, _TEST, _TRAIN))
    divided = np.where(is_added, _TRAIN, divided)
    has_own = (source_splits == _DEV) | (source_splits == _TEST)
    return np.where(has_own, source_splits, divided).astype(np.int8)


def _repeated_texts(
    rows: Mapping[str, Rows], hashes: NDArray[np.uint64], provides: frozenset[str]
) -> dict[str, NDArray[np.bool_]]:
    """Mark the documents of dev and of test whose text is in a split that something is fitted on.

    A dev that was taken from train serves to fit scorers too, so test must not have its texts either.
    """
    fitted_on = ("train",) if "dev" in provides else ("train", "dev")
    fitted_rows = np.concatenate([rows[name] for name in fitted_on])
    return {
        "dev": np.isin(hashes[rows["dev"]], hashes[rows["train"]]),
        "test": np.isin(hashes[rows["test"]], hashes[fitted_rows]),
    }


def _limited(
    rows: Rows, hashes: NDArray[np.uint64], most: int | None, seed: int
) -> Rows:
    """Choose at most so many rows by a hash of their texts, sorted."""
    if most is None or len(rows) <= most:
        return rows
    order = np.argsort(_mix(hashes[rows], 2 * seed + 1), kind="stable")
    return np.sort(rows[order[:most]])


def _mix(hashes: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """Hash the hashes with the splitmix64 finaliser: every salt gives another, independent-looking order."""
    with np.errstate(over="ignore"):
        mixed = hashes + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def _label_table(
    spool: Spool, rows: Mapping[str, Rows], info: LabelInfo, least: int
) -> tuple[LabelTable, NDArray[np.int64], int]:
    """Make the chosen documents' label table, the provisional ids of its labels, and the number of dropped labels."""
    matrix = spool.label_matrix
    provisional_labels = spool.labels
    if not info.names and all(
        _WHOLE_FLOAT.fullmatch(label) for label in provisional_labels
    ):
        provisional_labels = [label.removesuffix(".0") for label in provisional_labels]
    counts = {
        name: np.bincount(matrix[part].indices, minlength=len(provisional_labels))
        for name, part in rows.items()
    }
    train_counts = counts["train"]
    is_rare = (train_counts > 0) & (train_counts < least)
    is_used = sum(counts.values()) > 0
    ids = np.flatnonzero(is_used & ~is_rare).tolist()
    ids.sort(key=lambda provisional_id: provisional_labels[provisional_id])
    if not train_counts[ids].any():
        why = (
            f"no label has {least} training documents"
            if is_rare.any()
            else "the training documents have no labels"
        )
        raise DataError(f"{why}; see data.min_label_documents and data.source")
    labels = [provisional_labels[provisional_id] for provisional_id in ids]
    _warn_of_near_labels(labels, info)
    translations = {
        language: [names.get(label, "") for label in labels]
        for language, names in sorted(info.translations.items())
    }
    table = LabelTable(
        labels=labels,
        names=[info.names.get(label, label) for label in labels],
        train_counts=train_counts[ids],
        parents=[info.parents.get(label, ()) for label in labels]
        if info.parents
        else None,
        alternatives=[info.alternatives.get(label, ()) for label in labels]
        if info.alternatives
        else None,
        translations=translations,
        notations=[info.notations.get(label, "") for label in labels]
        if info.notations
        else None,
    )
    return table, np.array(ids, np.int64), int(is_rare.sum())


def _warn_of_near_labels(labels: list[str], info: LabelInfo) -> None:
    """Warn of labels that have no name because the label file writes them a little differently."""
    pairs = near_pairs(
        (label for label in labels if label not in info.names), info.names
    )
    if not pairs:
        return
    file_label, document_label = pairs[0]
    logger.warning(
        "%d labels have no name, but one like them is in the label file: %s is not, but %s is",
        len(pairs),
        quoted_label(document_label),
        quoted_label(file_label),
    )


def _check_several(table: LabelTable) -> None:
    """Refuse a single-label task in which every training document has the same label."""
    trained = np.flatnonzero(table.train_counts)
    if len(trained) == 1:
        label = quoted_cell(table.labels[trained[0]])
        raise DataError(
            f"data.task: single_label, but every training document has the label {label}, so there is nothing to tell "
            "apart; see data.source and data.min_label_documents"
        )
