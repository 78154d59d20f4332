"""Old against new: which decisions flip between two models, and, where people decided, which model is better."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from xmtc.data.readers.base import quoted_cell
from xmtc.desk.watch.acceptance import Annotation
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import Decided
from xmtc.evaluate.evaluation import EvaluatedDocuments, evaluate
from xmtc.evaluate.flips import flips
from xmtc.predict.decided import decided
from xmtc.predict.predictor import Model
from xmtc.predict.tokenised import tokenised
from xmtc.report.compare import flip_tables
from xmtc.report.run_results import RunResults
from xmtc.report.section import Paragraph, Part
from xmtc.report.sections.comparison import before_and_after
from xmtc.scorers.predictions import Gold

_TEXTS = 256


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
    old: Path, new: Path, documents: Iterable[tuple[str, str]], annotations: Sequence[Annotation]
) -> ModelComparison:
    """Compare two models on some documents, over the labels that both know.

    Args:
        old: the first model.
        new: the second model.
        documents: ids and texts.
        annotations: what people decided of some of them; of several people, the last one.

    Raises:
        DataError: there are no documents, or one has no tokens; no label that both models know; or no annotation is of
            a document.
    """
    ids, texts = zip(*documents, strict=True) if (documents := list(documents)) else ((), ())
    if not texts:
        raise DataError("no documents to compare on")
    models = [Model.from_pretrained(path) for path in (old, new)]
    labels, config = models[1].labels, EvaluateConfig()
    for model in models:
        lengths = tokenised(texts, model.scorer.tokenizer, model.info.max_length, offsets=False).lengths
        if not lengths.all():
            raise DataError(f"document {quoted_cell(ids[int(lengths.argmin())])} has no tokens: leave it out")
    known_L = np.array([label in models[0].labels for label in labels.labels])
    if not known_L.any():
        raise DataError(f"{old} and {new}: have no label in common")
    batches = [texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS)]
    made = [decided(model.scorer, batches, labels, known_L, config.top_k) for model in models]
    given = {one.document: one.labels for one in annotations}
    judged_N = np.array([doc_id in given for doc_id in ids])
    rows = np.flatnonzero(judged_N)
    if annotations and not len(rows):
        raise DataError("no annotation is of a document here: their ids must be those of the table")
    known = {label: at for at, label in enumerate(labels.labels) if known_L[at]}
    gold = _matrix([{known[label] for label in given.get(doc_id, ()) if label in known} for doc_id in ids], len(labels))
    found = flips(made[0], made[1], labels, config.bins, gold, judged_N)
    parts = flip_tables(found)
    if len(rows):
        runs = []
        for name, (predictions, made_NK) in zip(("old", "new"), made, strict=True):
            evaluation = evaluate(
                predictions.take(rows),
                gold[rows],
                labels,
                max(3, int(labels.train_counts.max())),  # at least so many; only propensities depend on it
                config=config,
                decision=Decided(made_NK=made_NK[rows]),
                documents=EvaluatedDocuments([ids[row] for row in rows]),
            )
            files = (evaluation.metrics, evaluation.per_label, evaluation.details | {"flips": found})
            runs.append(RunResults(name, "annotated", *files, evaluation.replicates, [], {}, {}))
        text = f"Metrics are of the {len(rows):,} documents that people labelled, with both models' own decisions."
        parts = [Paragraph(text), *(part for part in before_and_after(*runs) if part is not None)]
    gone, added = len(models[0].labels) - known_L.sum(), len(labels) - known_L.sum()
    facts = (
        f"{len(ids):,} documents, of which {found['flipped']:,} have a flip; {known_L.sum():,} labels that both models "
        f"know ({gone:,} only the old one, {added:,} only the new one)."
    )
    return ModelComparison(facts, parts, found["all"][-1][0])


def _matrix(rows: Sequence[Collection[int]], size: int) -> Gold:
    ends, columns = np.cumsum([0, *map(len, rows)]), np.array([at for row in rows for at in sorted(row)], np.int32)
    return sparse.csr_array((np.ones(len(columns), np.bool_), columns, ends), shape=(len(rows), size))


def as_share(given: str) -> float:
    """Read a share: `2%` or `0.02`.

    Raises:
        ConfigError: it is none.
    """
    try:
        share = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"--at-most {given[:40]}: give a share, such as 2% or 0.02")
    return share
