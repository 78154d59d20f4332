"""Old against new: which decisions flip between two models, and, where people decided, which model is better."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_cell
from xmtc.desk.watch.acceptance import Annotation
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import Decided
from xmtc.evaluate.evaluation import EvaluatedDocuments, evaluate
from xmtc.evaluate.flips import flips
from xmtc.predict.decided import Decisions, decided
from xmtc.predict.predictor import Model
from xmtc.predict.tokenised import tokenised
from xmtc.report.compare import flip_tables
from xmtc.report.run_results import RunResults
from xmtc.report.section import Paragraph, Part
from xmtc.report.sections.comparison import before_and_after
from xmtc.scorers.predictions import Gold

_TEXTS = 256
"""Texts that are scored together."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class ModelComparison:
    """What a second model changes.

    Attributes:
        facts: what was compared, a sentence.
        parts: tables.
        share: flips among the labels that either model gives.
    """

    facts: str
    parts: Sequence[Part]
    share: float


def compare_models(
    old: Path,
    new: Path,
    documents: Iterable[tuple[str, str]],
    annotations: Sequence[Annotation],
) -> ModelComparison:
    """Compare two models on some documents, over the labels that both know.

    Args:
        old: the first model.
        new: the second model.
        documents: ids and texts.
        annotations: what people decided of some of them; of several people, the last one. It counts if it judges
            every label that one of the models gives.

    Raises:
        DataError: there are no documents, or one has no tokens; no label that both models know; or no annotation is of
            a document.
    """
    text_by_id = list(documents)
    if not text_by_id:
        raise DataError("no documents to compare on: the files have no rows")
    ids = [doc_id for doc_id, _ in text_by_id]
    texts = [text for _, text in text_by_id]
    models = [Model.from_pretrained(path) for path in (old, new)]
    for model in models:
        _check_tokens(model, ids, texts)
    labels = models[1].labels
    shared_L = np.array([label in models[0].labels for label in labels.labels])
    if not shared_L.any():
        raise DataError(f"{old} and {new}: have no label in common")
    config = EvaluateConfig()
    batches = [texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS)]
    decisions = [
        decided(model.scorer, batches, labels, shared_L, config.top_k)
        for model in models
    ]
    by_document = {annotation.document: annotation for annotation in annotations}
    if annotations and by_document.keys().isdisjoint(ids):
        raise DataError(
            "no annotation is of a document here: their ids must be those of the table"
        )
    judged_N = np.array(
        [
            doc_id in by_document
            and all(map(by_document[doc_id].judges, _given(decisions, row, labels)))
            for row, doc_id in enumerate(ids)
        ]
    )
    if annotations and not judged_N.any():
        raise DataError(
            "no annotation judges every label that the models give its document: reject on the page what does not fit"
        )
    labels_by_document = {
        doc_id: annotation.labels for doc_id, annotation in by_document.items()
    }
    gold = _gold(ids, labels_by_document, labels, shared_L)
    flipped = flips(decisions[0], decisions[1], labels, config.bins, gold, judged_N)
    parts: list[Part] = list(flip_tables(flipped))
    rows = np.flatnonzero(judged_N)
    if len(rows):
        runs = []
        for name, (predictions, made_NK) in zip(("old", "new"), decisions, strict=True):
            evaluation = evaluate(
                predictions.take(rows),
                gold[rows],
                labels,
                max(
                    3, int(labels.train_counts.max())
                ),  # at least so many; only propensities depend on it
                config=config,
                decision=Decided(made_NK=made_NK[rows]),
                documents=EvaluatedDocuments([ids[row] for row in rows]),
            )
            files = (
                evaluation.metrics,
                evaluation.per_label,
                evaluation.details | {"flips": flipped},
            )
            runs.append(
                RunResults(name, "annotated", *files, evaluation.replicates, [], {}, {})
            )
        text = (
            f"Metrics are of the {len(rows):,} documents of which people judged every label that a model gives, with "
            "both models' own decisions."
        )
        parts = [
            Paragraph(text),
            *(part for part in before_and_after(*runs) if part is not None),
        ]
    shared = int(shared_L.sum())
    facts = (
        f"{len(ids):,} documents, of which {flipped['flipped']:,} have a flip; {shared:,} labels that both models know "
        f"({len(models[0].labels) - shared:,} only the old one, {len(labels) - shared:,} only the new one)."
    )
    return ModelComparison(facts, parts, flipped["all"][-1][0])


def _given(decisions: Sequence[Decisions], row: int, labels: LabelTable) -> set[str]:
    """Return the labels that one of the models gives to a document."""
    return {
        labels.labels[label_id]
        for predictions, made_NK in decisions
        for label_id in predictions.label_ids_NK[row, made_NK[row]].tolist()
    }


def _check_tokens(model: Model, ids: Sequence[str], texts: Sequence[str]) -> None:
    """Refuse a document without tokens, by its id."""
    lengths_N = tokenised(
        texts, model.scorer.tokenizer, model.info.max_length, offsets=False
    ).lengths
    if not lengths_N.all():
        raise DataError(
            f"document {quoted_cell(ids[int(lengths_N.argmin())])} has no tokens: leave it out"
        )


def _gold(
    ids: Sequence[str],
    labels_by_document: Mapping[str, Collection[str]],
    labels: LabelTable,
    shared_L: NDArray[np.bool_],
) -> Gold:
    """Make the matrix of the labels that people gave, as far as both models know them."""
    shared_ids = {
        label: label_id
        for label_id, label in enumerate(labels.labels)
        if shared_L[label_id]
    }
    columns: list[int] = []
    ends = [0]
    for doc_id in ids:
        given = labels_by_document.get(doc_id, ())
        columns += sorted({shared_ids[label] for label in given if label in shared_ids})
        ends.append(len(columns))
    values = np.ones(len(columns), np.bool_)
    return sparse.csr_array(
        (values, np.array(columns, np.int32), np.array(ends)),
        shape=(len(ids), len(labels)),
    )


def as_share(text: str) -> float:
    """Read a share: `2%` or `0.02`.

    Raises:
        ConfigError: it is none.
    """
    whole = 100 if text.endswith("%") else 1
    try:
        share = float(text.removesuffix("%")) / whole
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(
            f"--at-most {text[:_SHOWN_CHARACTERS]}: give a share, such as 2% or 0.02"
        )
    return share
