"""The linear tree a user would pick instead: omikuji's Parabel on TF-IDF, trained and measured on a prepared corpus.

It learns from the train split, on TF-IDF of the very tokens that a model of that corpus reads; scores are calibrated by
label frequency and the threshold tuned on dev, exactly as for xmtc's own predictions. Prints JSON lines.

    .venv/bin/python tools/study/tree_baseline.py corpora/quickstart
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import omikuji
import pyarrow.parquet as pq
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer

from xmtc.data.corpus import Corpus, Split
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import evaluate
from xmtc.evaluate.fit_calibration import calibrated, fit_calibration
from xmtc.fusion.decision import Decision
from xmtc.scorers.predictions import SparsePredictions

KEYS = ("p@1", "p@3", "p@5", "rp@5", "ndcg@5", "psp@5", "micro_f1", "macro_f1")


def of_tokens(
    corpus: Corpus, splits: Sequence[str] = ("train", "dev")
) -> Iterator[sparse.csr_matrix]:
    """TF-IDF of the token ids that a model reads; the first split teaches the document frequencies."""
    transform = TfidfTransformer(sublinear_tf=True)
    for index, name in enumerate(splits):
        found = counts(corpus.split(name), corpus.manifest.tokenizer.vocab_size)
        yield sparse.csr_matrix(
            transform.transform(found) if index else transform.fit_transform(found)
        )


def of_texts(corpus: Corpus, data: Path) -> Iterator[sparse.csr_matrix]:
    """TF-IDF of the words of the whole texts, of train and dev."""
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    for split, learn in (
        ("train", vectorizer.fit_transform),
        ("dev", vectorizer.transform),
    ):
        table = pq.read_table(
            data / f"{split}.parquet", columns=["doc_id", "title", "text"]
        ).to_pylist()
        texts = {row["doc_id"]: f"{row['title']}\n{row['text']}" for row in table}
        yield sparse.csr_matrix(
            learn([texts[doc_id] for doc_id in corpus.split(split).doc_ids()])
        )


def counts(split: Split, vocabulary: int) -> sparse.csr_matrix:
    """How often each token occurs in each document."""
    tokens = np.concatenate([split.tokens(i) for i in range(len(split))])
    rows = np.repeat(np.arange(len(split)), np.asarray(split.lengths))
    return sparse.csr_matrix(
        (np.ones(len(tokens), np.float32), (rows, tokens)),
        shape=(len(split), vocabulary),
    )


def train_tree(
    features: sparse.csr_matrix, gold: sparse.csr_array, settings: Any = None
) -> omikuji.Model:
    """Omikuji with these settings, or its default ones: Parabel, three trees."""
    with (
        tempfile.NamedTemporaryFile("w", suffix=".txt") as file,
        native_output_to_stderr(),
    ):
        file.write(f"{features.shape[0]} {features.shape[1]} {gold.shape[1]}\n")
        for row in range(features.shape[0]):
            labels = ",".join(
                map(str, gold.indices[gold.indptr[row] : gold.indptr[row + 1]])
            )
            file.write(
                labels
                + "".join(
                    f" {token}:{value:.6f}" for token, value in pairs(features, row)
                )
                + "\n"
            )
        file.flush()
        return omikuji.Model.train_on_data(
            file.name, settings or omikuji.Model.default_hyper_param(), 2
        )


def predict(model: omikuji.Model, features: sparse.csr_matrix) -> SparsePredictions:
    """The tree's best hundred labels of each document."""
    found = [
        model.predict(pairs(features, row), beam_size=30, top_k=100)
        for row in range(features.shape[0])
    ]
    width = max(map(len, found))
    padded = np.array(
        [[*row, *[(-1, 0.0)] * (width - len(row))] for row in found]
    ).reshape(len(found), width, 2)
    return SparsePredictions(
        padded[..., 0].astype(np.int32), padded[..., 1].astype(np.float32)
    )


def pairs(matrix: sparse.csr_matrix, row: int) -> list[tuple[int, float]]:
    """(column, value) of a row."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return list(
        zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True)
    )


@contextmanager
def native_output_to_stderr() -> Iterator[None]:
    """Omikuji logs to the process's standard output, where JSON lines belong."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def figures(metrics: dict[str, Any]) -> dict[str, float]:
    """The figures compared, in percent."""
    bins = {
        f"macro_f1 {name}": part["macro_f1"]
        for name, part in metrics["bins"].items()
        if name != "0"
    }
    return {
        k: round(100 * v, 2)
        for k, v in ({key: metrics[key] for key in KEYS} | bins).items()
    }


def measured(
    corpus: Corpus,
    predictions: SparsePredictions,
    gold: sparse.csr_array,
    decision: Decision | None = None,
) -> dict[str, float]:
    """Figures of predictions; without a decision, those of these very documents."""
    decision = decision or outcomes_of(predictions, gold).tuned("micro")
    config, documents = EvaluateConfig(resamples=0), corpus.train_documents
    found = evaluate(
        predictions, gold, corpus.labels, documents, config=config, decision=decision
    )
    return figures(dict(found.metrics))


def main() -> None:
    """Train on train, calibrate and tune on dev, measure the last split there is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "corpus", type=Path, help="a corpus directory, see xmtc prepare"
    )
    corpus = Corpus.open(parser.parse_args().corpus)
    splits = [name for name in ("train", "dev", "test") if name in corpus.splits]
    features = dict(zip(splits, of_tokens(corpus, splits), strict=True))
    model = train_tree(features["train"], corpus.split("train").label_matrix())
    found = {name: predict(model, features[name]) for name in splits[1:]}
    gold = {name: corpus.split(name).label_matrix() for name in splits[1:]}
    calibration = fit_calibration(
        found["dev"], gold["dev"], corpus.labels.train_counts, EvaluateConfig().bins
    )
    for kind, scores in (
        ("", found),
        (", calibrated", {n: calibrated(p, calibration) for n, p in found.items()}),
    ):
        decision = outcomes_of(scores["dev"], gold["dev"]).tuned("micro")
        for name in splits[1:]:
            record = {
                "system": f"Parabel{kind}",
                "split": name,
                **measured(corpus, scores[name], gold[name], decision),
            }
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
