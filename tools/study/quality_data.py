"""The public data sets of `tools/study/quality.py` as features and labels, from their parquet files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.config import WordsConfig
from xmtc.data.fields import FieldText
from xmtc.data.labels import LabelTable
from xmtc.data.readers.columns import category_terms
from xmtc.data.words import TermRules, Vocabulary, choose_words, document_frequencies
from xmtc.scorers.base import Features, LabelNames, Training
from xmtc.scorers.label_text import label_words

_IMDB_HELD_OUT = 5_000
TITLED = ("eurlex57k", "gnd_tib")
Rows = dict[str, list[Any]]


@dataclass(frozen=True)
class Case:
    """One data set: training documents, and held-out ones in two halves.

    Attributes:
        training: what scorers are fitted on.
        vocabulary: of the training texts.
        held_out: features of the other documents.
        gold: boolean labels of these.
        tuning: rows of the held-out documents that fusion and thresholds are fitted on.
        reported: the other rows, which are measured.
        labels: ids, names and training counts.
        single_label: whether a document has exactly one label.
        texts: held-out texts' and training texts' source, for encoding: (train, held out).
    """

    training: Training
    vocabulary: Vocabulary
    held_out: Features
    gold: sparse.csr_array
    tuning: NDArray[np.int64]
    reported: NDArray[np.int64]
    labels: LabelTable
    single_label: bool


def load_case(
    folder: Path,
    words: WordsConfig,
    *,
    one_text: bool = False,
    categories: tuple[str, ...] = (),
    most: int | None = None,
) -> Case:
    """Read a folder with train.parquet and, but for IMDB, dev.parquet and labels.parquet.

    Args:
        folder: the data set.
        words: limits of the vocabulary.
        one_text: whether title and text are one field.
        categories: columns with categories.
        most: training documents to draw, and a quarter as many others; None takes all.
    """
    train, dev = splits(folder, categories)
    if most is not None:
        train, dev = _drawn(train, most), _drawn(dev, most // 4)
    fields = ("title", "text") if folder.name in TITLED and not one_text else ("text",)
    if one_text:
        train, dev = (
            {**rows, "text": list(map(str, rows["text"]))} for rows in (train, dev)
        )
    return case_of(
        train,
        dev,
        _names(folder),
        words,
        fields,
        categories,
        single_label=folder.name == "imdb",
    )


def case_of(
    train: Rows,
    held_out: Rows,
    names: Mapping[str, Sequence[str]],
    words: WordsConfig,
    fields: tuple[str, ...],
    categories: tuple[str, ...],
    *,
    single_label: bool,
) -> Case:
    """Count words, and divide the held-out documents into halves.

    Args:
        train: texts and labels of the training documents.
        held_out: of the others.
        names: every name of every label that has one.
        words: limits of the vocabulary.
        fields: of texts with several.
        categories: of texts that have them.
        single_label: whether a document has exactly one label.
    """
    labels = sorted(
        {label for row in (*train["labels"], *held_out["labels"]) for label in row}
    )
    gold_train, gold = (_matrix(part["labels"], labels) for part in (train, held_out))
    counts = np.bincount(gold_train.indices, minlength=len(labels)).astype(np.int64)
    every = [names.get(label) or [""] for label in labels]
    table = LabelTable(labels, [some[0] for some in every], counts)
    frequencies = document_frequencies(train["text"], TermRules.by(words))
    vocabulary = choose_words(
        frequencies, len(train["text"]), words, fields, categories
    )
    texts, owners = (
        [name for some in every for name in some],
        np.repeat(np.arange(len(labels)), list(map(len, every))),
    )
    found = LabelNames(texts, owners, label_words(texts, vocabulary)) if names else None
    training = Training(Features(vocabulary.words(train["text"])), gold_train, found)
    order = np.random.default_rng(7).permutation(len(held_out["text"]))
    tuning, reported = (
        np.sort(order[: len(order) // 2]),
        np.sort(order[len(order) // 2 :]),
    )
    features = Features(vocabulary.words(held_out["text"]))
    return Case(
        training, vocabulary, features, gold, tuning, reported, table, single_label
    )


def splits(folder: Path, categories: tuple[str, ...] = ()) -> tuple[Rows, Rows]:
    """Training rows and held-out rows; held-out texts that repeat a training text, title and all, are dropped."""
    train = _rows(folder / "train.parquet", categories)
    if not (folder / "dev.parquet").exists():
        order = np.random.default_rng(0).permutation(len(train["text"]))
        return _take(train, order[_IMDB_HELD_OUT:]), _take(
            train, order[:_IMDB_HELD_OUT]
        )
    dev = _rows(folder / "dev.parquet", categories)
    seen = set(train["text"])
    return train, _take(
        dev, [row for row, text in enumerate(dev["text"]) if text not in seen]
    )


def _rows(path: Path, categories: tuple[str, ...]) -> Rows:
    """Read texts, preceded by the title if it is a separate column, their categories and labels."""
    rows = pq.read_table(path).to_pydict()
    if path.parent.name in TITLED:
        places = range(len(rows["text"]))
        terms = [
            category_terms({name: rows[name][place] for name in categories}, categories)
            for place in places
        ]
        parts = zip(rows["title"], rows["text"], terms, strict=True)
        rows["text"] = [FieldText.join(pair, found) for *pair, found in parts]
    return {"text": rows["text"], "labels": rows["labels"]}


def _take(rows: Rows, chosen: Sequence[int] | NDArray[np.integer]) -> Rows:
    return {name: [values[row] for row in chosen] for name, values in rows.items()}


def _drawn(rows: Rows, most: int) -> Rows:
    return _take(rows, np.random.default_rng(1).permutation(len(rows["text"]))[:most])


def _names(folder: Path) -> dict[str, list[str]]:
    """Every name of every label that has one."""
    path = folder / "labels.parquet"
    if not path.exists():
        return {}
    rows = pq.read_table(path).to_pylist()
    every = {
        row["label"]: [row["name"], *row.get("alt_names", ()), row.get("name_de")]
        for row in rows
    }
    return {
        label: list(dict.fromkeys(filter(None, names)))
        for label, names in every.items()
    }


def _matrix(rows: Sequence[Sequence[str]], labels: Sequence[str]) -> sparse.csr_array:
    ids = {label: number for number, label in enumerate(labels)}
    found = [sorted({ids[label] for label in row}) for row in rows]
    ends = np.cumsum([0, *(len(row) for row in found)])
    columns = np.concatenate([np.array(row, np.int32) for row in found])
    return sparse.csr_array(
        (np.ones(len(columns), np.bool_), columns, ends), shape=(len(rows), len(labels))
    )
