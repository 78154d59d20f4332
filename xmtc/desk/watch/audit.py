"""Audits: a stratified sample of scored documents, and what its annotations say of all of them.

Strata are quarters of the documents by expected F1, and in these the bins of the rarest label that a document gets.
Totals are estimated by stratum; a ratio of two totals has the variance of its linearisation,
Σ_h N_h² (1 − n_h / N_h) s_h² / n_h over the square of the lower total, with s_h² the variance of y − R x (Cochran 1977,
Sampling Techniques, 6.10).

Suffixes: N documents, n of the sample, H strata.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel
from scipy.stats import t as student

from xmtc.data.bins import bin_mask
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import Rejected
from xmtc.desk.watch.acceptance import Annotation
from xmtc.errors import DataError, StorageError
from xmtc.evaluate.summary import percent
from xmtc.files import parse_json, read_file, reading, write_text
from xmtc.fusion.config import BINS
from xmtc.fusion.decision import EXPECTED
from xmtc.report.section import Table
from xmtc.score.inputs import InputFile
from xmtc.score.job import FORMAT, MANIFEST

_QUARTERS = 4
_LEAST = 2
"""Documents of a stratum whose variance is known."""
_CONFIDENCE = 0.975
_DIGITS = 6


def read_scores(scored: Path) -> pa.Table:
    """Read the output of `xmtc score --threshold …`.

    Raises:
        DataError: it is not a finished job, or has labels that documents do not get.
    """
    if not (scored / MANIFEST).is_file():
        raise DataError(f"{scored}: not the output of a finished xmtc score")
    with reading(scored, fix="score again"):
        manifest = parse_json(read_file(scored / MANIFEST))
        if manifest["format"] != FORMAT:
            raise DataError(f"{scored}: of another version of xmtc: score again")
        if manifest["settings"]["threshold"] is None:
            raise DataError(
                f"{scored}: has the best labels, not those predicted: score with --threshold tuned"
            )
        return pa.concat_tables(
            [pq.read_table(scored / part["path"]) for part in manifest["parts"]]
        )


def check_inputs(scored: Path, files: Iterable[InputFile]) -> None:
    """Check that files are those that were scored: others may have other texts under the same identifiers.

    Raises:
        DataError: names one that is not, or has changed since.
    """
    scored_digests = {
        entry["digest"] for entry in parse_json(read_file(scored / MANIFEST))["input"]
    }
    for file in files:
        if file.digest not in scored_digests:
            message = f"--input {file.path}: not what {scored} was made of, or changed since; give the files scored"
            raise DataError(message)


def draw(
    table: pa.Table, size: int, seed: int, labels: LabelTable
) -> list[dict[str, Any]]:
    """Draw a stratified sample, in proportion to the strata but at least two documents of each, in random order.

    Args:
        table: scored documents.
        size: documents of the sample.
        seed: of the draw.
        labels: labels of the model.

    Returns:
        Documents with `id`, `stratum`, `documents` (of the stratum), predicted `labels`, and what is `expected`.

    Raises:
        DataError: the sample is too small or too large, documents share an id, or a label is not the model's.
    """
    frame = table.to_pandas()
    for doc_id, count in Counter(frame["doc_id"]).items():
        if count > 1:
            raise DataError(
                f"several documents have the identifier {doc_id!r}: score with an --id that tells them apart"
            )
    rank_N = frame["expected_f1"].rank(method="first") - 1
    quarter_N = rank_N * _QUARTERS // len(frame) + 1
    strata = []
    for quarter, predicted in zip(quarter_N, frame["labels"], strict=True):
        strata.append(
            f"quarter {quarter:.0f}, rarest label {_rarest_bin(predicted, labels)}"
        )
    frame["stratum"] = strata
    sizes_H = frame["stratum"].value_counts()
    sample_sizes_H = _sample_sizes(sizes_H, size)
    parts = []
    for stratum, group in frame.groupby("stratum"):
        parts.append(group.sample(sample_sizes_H[stratum], random_state=seed))
    shuffled = pd.concat(parts).sample(frac=1, random_state=seed)
    return [
        {
            "id": row["doc_id"],
            "stratum": row["stratum"],
            "documents": int(sizes_H[row["stratum"]]),
            "labels": list(row["labels"]),
            "expected_labels": round(float(row["expected_labels"]), _DIGITS),
            "expected": {
                name: round(float(row[f"expected_{name}"]), _DIGITS)
                for name in EXPECTED
            },
        }
        for row in shuffled.to_dict("records")
    ]


def _sample_sizes(sizes_H: pd.Series, size: int) -> pd.Series:
    """Divide a sample among the strata: at least two documents of each, or all it has; the rest in proportion.

    Args:
        sizes_H: documents of each stratum.
        size: documents of the sample.

    Raises:
        DataError: the sample is too small for the strata, or larger than the documents.
    """
    documents = int(sizes_H.sum())
    least_H = sizes_H.clip(upper=_LEAST)
    least = int(least_H.sum())
    if not least <= size <= documents:
        raise DataError(
            f"--size {size}: {documents:,} documents, {len(sizes_H)} strata: give {least} to {documents}"
        )
    beyond_H = sizes_H - least_H
    # Rounding the cumulative sums, and not the parts, makes their sum exact.
    ends_H = (beyond_H.cumsum() * (size - least) / max(documents - least, 1)).round()
    return least_H + np.diff(ends_H, prepend=0).astype(int)


def _rarest_bin(predicted: Sequence[str], labels: LabelTable) -> str:
    """Return the bin of the rarest predicted label; `none` without labels."""
    counts = labels.train_counts[labels.indices(predicted)]
    for name in BINS:
        if bin_mask(name, counts).any():
            return name
    return "none"


def write_sample(
    path: Path,
    sample: Sequence[Mapping[str, Any]],
    cells: Mapping[str, Mapping[str, Any]] | None,
    first_bad: Rejected | None = None,
) -> None:
    """Write the sample as JSON lines, with the cells of documents if they are given, as a queue of `xmtc serve`.

    Args:
        path: the file.
        sample: its rows.
        cells: cells of documents by identifier.
        first_bad: the first row of the files of documents that is none.

    Raises:
        DataError: there is no text of a document, or a column has the name of a key.
        StorageError: the file exists, or cannot be written.
    """
    if path.exists():
        raise StorageError(
            f"{path}: exists; a sample is drawn once: choose another --output"
        )
    if cells is not None:
        for row in sample:
            if row["id"] not in cells:
                advice = (
                    "give the files that were scored, and the same --id"
                    if first_bad is None
                    else f"the first row that is no document is {first_bad.where}: {first_bad.reason}"
                )
                raise DataError(f"--input: no document {row['id']!r}: {advice}")
    lines = []
    for row in sample:
        document = {} if cells is None else cells[row["id"]]
        clashing_names = document.keys() & row.keys()
        if clashing_names:
            name = min(clashing_names)
            raise DataError(
                f"--input: {name!r} is a key of samples: rename it in training, or leave out texts"
            )
        lines.append(json.dumps({**document, **row}, ensure_ascii=False))
    write_text(path, "".join(f"{line}\n" for line in lines))


class Drawn(BaseModel):
    """A line of a sample."""

    id: str
    stratum: str
    documents: int
    labels: list[str]
    expected_labels: float
    expected: dict[str, float]

    @property
    def quarter(self) -> str:
        """The quarter of expected F1, the first part of the stratum."""
        return self.stratum.partition(",")[0]


def audit(path: Path, annotations: Sequence[Annotation]) -> Table:
    """Estimate precision, recall and F1 of all documents from the sample's annotations, and by quarter.

    Of a document that several people annotated, their mean counts. Who left a predicted label unjudged does not count.

    Raises:
        DataError: the sample cannot be read, or a stratum has fewer than two annotated documents.
    """
    with reading(
        path, fix="give what xmtc annotations sample wrote", what="not a sample"
    ):
        lines = read_file(path).decode("utf-8-sig").split("\n")
        sample = [Drawn.model_validate_json(line) for line in lines if line]
    if not sample:
        raise DataError(
            f"{path}: no documents in it; give what xmtc annotations sample wrote"
        )
    predicted_by_document = {document.id: document.labels for document in sample}
    labels_by_document: dict[str, list[set[str]]] = defaultdict(list)
    unfinished = 0
    for annotation in annotations:
        predicted = predicted_by_document.get(annotation.document, ())
        if all(map(annotation.judges, predicted)):
            labels_by_document[annotation.document].append(set(annotation.labels))
        else:
            unfinished += 1
    annotated = [document for document in sample if document.id in labels_by_document]
    _check_strata(path, sample, annotated)
    quarters = sorted({document.quarter for document in annotated})
    rows = [_estimates("all", annotated, labels_by_document)]
    for quarter in quarters:
        documents = [document for document in annotated if document.quarter == quarter]
        rows.append(_estimates(quarter, documents, labels_by_document))
    columns = ["documents", "number", "annotated"]
    for name in ("precision", "recall", "F1"):
        columns += [f"{name} expected, %", f"{name}, %"]
    caption = "Micro metrics of all documents, by quarters of expected F1, with 95 % intervals"
    if unfinished:
        caption += f"; {unfinished:,} annotations do not count, because they leave predicted labels unjudged"
    return Table("audit", columns, rows, caption=caption)


def _check_strata(
    path: Path, sample: Sequence[Drawn], annotated: Sequence[Drawn]
) -> None:
    """Refuse an audit in which a stratum has too few annotated documents to know its variance."""
    counts = Counter(document.stratum for document in annotated)
    for document in sample:
        annotated_documents = counts[document.stratum]
        if annotated_documents < min(_LEAST, document.documents):
            message = f"stratum {document.stratum!r}: {annotated_documents} annotated documents: annotate more"
            raise DataError(f"{path}: {message}")


def _estimates(
    name: str,
    documents: Sequence[Drawn],
    labels_by_document: Mapping[str, Sequence[set[str]]],
) -> list[str]:
    """Estimate the metrics of all documents that a part of the sample stands for: a row of the table.

    What the model expects, and what people's labels say, stand beside each other. Of a document that several people
    annotated, their mean counts.
    """
    strata, stratum_n = np.unique(
        [document.stratum for document in documents], return_inverse=True
    )
    size_of_stratum = {document.stratum: document.documents for document in documents}
    sizes_H = np.array([size_of_stratum[stratum] for stratum in strata])
    right = []
    given = []
    for document in documents:
        people = labels_by_document[document.id]
        right.append(
            np.mean([len(labels.intersection(document.labels)) for labels in people])
        )
        given.append(np.mean([len(labels) for labels in people]))
    predicted_n = np.array([float(len(document.labels)) for document in documents])
    expected_right_n = predicted_n * [
        document.expected["precision"] for document in documents
    ]
    expected_given_n = np.array([document.expected_labels for document in documents])
    right_n = np.array(right)
    given_n = np.array(given)
    cells = [name, f"{sizes_H.sum():,}", f"{len(documents):,}"]
    # Precision, recall and F1 are ratios of the same labels to three totals.
    expected_wholes = (
        predicted_n,
        expected_given_n,
        (predicted_n + expected_given_n) / 2,
    )
    wholes = (predicted_n, given_n, (predicted_n + given_n) / 2)
    for expected_whole_n, whole_n in zip(expected_wholes, wholes, strict=True):
        expected, _, _ = stratified_ratio(
            expected_right_n, expected_whole_n, stratum_n, sizes_H
        )
        value, low, high = stratified_ratio(right_n, whole_n, stratum_n, sizes_H)
        cells += [percent(expected), percent(value, [low, high])]
    return cells


def stratified_ratio(
    top_n: NDArray[np.floating],
    whole_n: NDArray[np.floating],
    strata_n: NDArray[np.integer],
    sizes_H: NDArray[np.integer],
) -> tuple[float, float, float]:
    """Estimate a ratio of totals and its 95 % interval.

    Args:
        top_n: values of the sample.
        whole_n: values of the lower total.
        strata_n: stratum of each document.
        sizes_H: documents of each stratum.
    """
    counts_H = np.bincount(strata_n, minlength=len(sizes_H))
    weights_n = (sizes_H / counts_H)[strata_n]
    whole = float(weights_n @ whole_n)
    if not whole:
        return 0.0, 0.0, 1.0
    ratio = float(weights_n @ top_n) / whole
    rest_n = top_n - ratio * whole_n
    means_H = np.bincount(strata_n, rest_n) / counts_H
    squares_H = np.bincount(strata_n, (rest_n - means_H[strata_n]) ** 2) / np.maximum(
        counts_H - 1, 1
    )
    variance = float(
        (sizes_H**2 * (1 - counts_H / sizes_H) * squares_H / counts_H).sum()
    )
    degrees_of_freedom = max(len(top_n) - len(sizes_H), 1)
    reach = float(student.ppf(_CONFIDENCE, degrees_of_freedom)) * variance**0.5 / whole
    return ratio, max(0.0, ratio - reach), min(1.0, ratio + reach)
