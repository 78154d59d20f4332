"""Whether Snowball's stems are worth more to scorers over words than the first six letters of words.

    pip install snowballstemmer
    python tools/study/stems.py ../shared/data

Three vocabularies of the same documents: words alone, words with the six letters that `data.words.stems: 6` adds,
and words with Snowball's stem of every word. Each is read by the regression that the linear scorer solves, ridge from
TF-IDF rows to labels, with the same penalty for all three. So nothing is chosen on what is measured, and nothing is
random.

Texts, fixed before the first measurement: Spanish clinical cases (all 500 of train, all 250 of dev); all library
records whose language is recognised as German, which are few; and the first 4,000 (train) and 1,500 (dev) library
records, nearly all of which are English.

Hypothesis: Snowball gains 0.3 points of nDCG@5 or more over six letters, on Spanish or on German, and the paired 95 %
interval over documents of the gain lies above 0. Without that, the option stays out.

Prints JSON lines: for each set, nDCG@5 of each vocabulary, and the gains of Snowball with their intervals.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import snowballstemmer
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.analyzer import words_of
from xmtc.data.config import WordsConfig
from xmtc.data.languages import languages_of
from xmtc.data.words import TermRules, Words, choose_words, count_words

PENALTY = 0.3
LETTERS = 6
RESAMPLES = 2000
RECORDS = {"train": 4_000, "dev": 1_500}
GERMAN_WORDS = re.compile(r"\b(?:und|der|die|das)\b")
"""Occur three times in a German text; recognising the language of all texts would take longer than the study."""
VOCABULARIES = ("words", "letters", "snowball")


class Documents(NamedTuple):
    """Texts with their labels."""

    texts: list[str]
    labels: list[list[str]]


def spanish_cases(data: Path, split: str) -> Documents:
    """Read all clinical cases of a split, in Spanish."""
    table = pq.read_table(data / "codiesp" / f"{split}.parquet")
    return Documents(table["text_es"].to_pylist(), table["labels"].to_pylist())


def records(data: Path, split: str, *, german: bool) -> Documents:
    """Read the first library records of a split, or all that are German."""
    table = pq.read_table(data / "gnd_tib" / f"{split}.parquet")
    if not german:
        table = table.slice(0, RECORDS[split])
    found = Documents([], [])
    for row in table.to_pylist():
        text = f"{row['title']}\n{row['text'] or ''}"
        if not german or is_german(text):
            found.texts.append(text)
            found.labels.append(row["labels"])
    return found


def is_german(text: str) -> bool:
    """Whether the language of a text is recognised as German."""
    return len(GERMAN_WORDS.findall(text)) >= 3 and "de" in languages_of([text])


def terms_of(text: str, vocabulary: str, stemmer: object) -> list[str]:
    """List the terms of a text."""
    words = words_of(text)
    if vocabulary == "letters":
        return TermRules(stems=LETTERS).of(words)
    if vocabulary == "snowball":
        return words + [f"{stem}*" for stem in stemmer.stemWords(words)]
    return words


def rows_of(train: Sequence[list[str]], dev: Sequence[list[str]]) -> list:
    """Make TF-IDF rows of both splits over the vocabulary of train."""
    frequencies = Counter(term for terms in train for term in set(terms))
    vocabulary = choose_words(frequencies, len(train), WordsConfig())
    return [
        Words(count_words(split).over(vocabulary), vocabulary).together()
        for split in (train, dev)
    ]


def ndcg(train: Documents, dev: Documents, vocabulary: str, stemmer: object) -> NDArray:
    """Fit on train, and measure nDCG@5 of each dev document with labels of train."""
    terms = [
        [terms_of(text, vocabulary, stemmer) for text in split.texts]
        for split in (train, dev)
    ]
    train_rows, dev_rows = rows_of(*terms)
    names = sorted({label for labels in train.labels for label in labels})
    columns = {name: column for column, name in enumerate(names)}
    indices = [columns[label] for labels in train.labels for label in set(labels)]
    ends = np.cumsum([0, *(len(set(labels)) for labels in train.labels)])
    shape = (len(train.texts), len(names))
    targets = sparse.csr_array((np.ones(len(indices)), indices, ends), shape=shape)
    gram = (train_rows @ train_rows.T).toarray().astype(np.float64)
    gram[np.diag_indices_from(gram)] += PENALTY
    weights = np.linalg.solve(gram, targets.toarray())
    scores = (dev_rows @ train_rows.T).toarray() @ weights
    discounts = 1 / np.log2(np.arange(2, 7))
    gains = []
    for labels, row in zip(dev.labels, scores, strict=True):
        if labels:
            best = np.argsort(-row, kind="stable")[:5]
            hits = np.array([names[column] in labels for column in best])
            gains.append((hits @ discounts) / discounts[: len(set(labels))].sum())
    return np.array(gains)


def gain(better: NDArray, worse: NDArray) -> dict[str, float | list[float]]:
    """Measure the mean difference in points, with its paired interval over documents."""
    differences = 100 * (better - worse)
    generator = np.random.default_rng(13)
    rows = generator.integers(len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.percentile(differences[rows].mean(1), [2.5, 97.5])
    return {
        "points": round(differences.mean(), 2),
        "interval": [round(low, 2), round(high, 2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the data sets")
    data = parser.parse_args().data
    splits = ("train", "dev")
    sets = {
        "spanish": [spanish_cases(data, split) for split in splits],
        "german": [records(data, split, german=True) for split in splits],
        "english": [records(data, split, german=False) for split in splits],
    }
    for language, (train, dev) in sets.items():
        stemmer = snowballstemmer.stemmer(language)
        found = {
            vocabulary: ndcg(train, dev, vocabulary, stemmer)
            for vocabulary in VOCABULARIES
        }
        result = {
            "language": language,
            "train": len(train.texts),
            "dev": len(found["words"]),
            "ndcg@5": {
                name: round(100 * values.mean(), 2) for name, values in found.items()
            },
            "snowball over letters": gain(found["snowball"], found["letters"]),
            "snowball over words": gain(found["snowball"], found["words"]),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
