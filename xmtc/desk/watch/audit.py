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
            raise DataError(f"{scored}: has the best labels, not those predicted: score with --threshold tuned")
        return pa.concat_tables([pq.read_table(scored / part["path"]) for part in manifest["parts"]])


def check_inputs(scored: Path, files: Iterable[InputFile]) -> None:
    """Check that files are those that were scored: others may have other texts under the same identifiers.

    Raises:
        DataError: names one that is not, or has changed since.
    """
    known = {one["digest"] for one in parse_json(read_file(scored / MANIFEST))["input"]}
    if other := next((file for file in files if file.digest not in known), None):
        raise DataError(f"--input {other.path}: not what {scored} was made of, or changed since; give the files scored")


def draw(table: pa.Table, size: int, seed: int, labels: LabelTable) -> list[dict[str, Any]]:
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
    if twice := [name for name, count in Counter(frame["doc_id"]).items() if count > 1]:
        raise DataError(f"several documents have the identifier {twice[0]!r}: score with an --id that tells them apart")
    quarter_N = frame["expected_f1"].rank(method="first").sub(1) * _QUARTERS // len(frame) + 1
    rarest_N = [_rarest(found, labels) for found in frame["labels"]]
    pairs = zip(quarter_N, rarest_N, strict=True)
    frame["stratum"] = [f"quarter {quarter:.0f}, rarest label {rarest}" for quarter, rarest in pairs]
    sizes_H = frame["stratum"].value_counts()
    least = int(sizes_H.clip(upper=_LEAST).sum())
    if not least <= size <= len(frame):
        raise DataError(f"--size {size}: {len(frame):,} documents, {len(sizes_H)} strata: give {least} to {len(frame)}")
    rest_H = (sizes_H - _LEAST).clip(lower=0)
    ends_H = (rest_H.cumsum() * (size - least) / max(len(frame) - least, 1)).round()  # their sum is exact
    wanted_H = sizes_H - rest_H + np.diff(ends_H, prepend=0).astype(int)
    parts = [some.sample(wanted_H[name], random_state=seed) for name, some in frame.groupby("stratum")]
    return [
        {
            "id": row["doc_id"],
            "stratum": row["stratum"],
            "documents": int(sizes_H[row["stratum"]]),
            "labels": list(row["labels"]),
            "expected_labels": round(float(row["expected_labels"]), 6),
            "expected": {name: round(float(row[f"expected_{name}"]), 6) for name in EXPECTED},
        }
        for row in pd.concat(parts).sample(frac=1, random_state=seed).to_dict("records")
    ]


def _rarest(found: Sequence[str], labels: LabelTable) -> str:
    counts = labels.train_counts[labels.indices(found)]
    return next((name for name in BINS if bin_mask(name, counts).any()), "none")


def write_sample(
    path: Path, sample: Sequence[Mapping[str, Any]], cells: Mapping[str, Mapping[str, Any]] | None
) -> None:
    """Write the sample as JSON lines, with the cells of documents if they are given, as a queue of `xmtc serve`.

    Raises:
        DataError: there is no text of a document, or a column has the name of a key.
        StorageError: the file exists, or cannot be written.
    """
    if path.exists():
        raise StorageError(f"{path}: exists; a sample is drawn once: choose another --output")
    if cells is not None and (missing := [row["id"] for row in sample if row["id"] not in cells]):
        raise DataError(f"--input: no document {missing[0]!r}: give the files that were scored, and the same --id")
    given = [cells[row["id"]] if cells else {} for row in sample]
    if taken := {name for one in given for name in one} & sample[0].keys():
        raise DataError(f"--input: {min(taken)!r} is a key of samples: rename it in training, or leave out texts")
    lines = [{**one, **row} for one, row in zip(given, sample, strict=True)]
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


class Drawn(BaseModel):
    """A line of a sample."""

    id: str
    stratum: str
    documents: int
    labels: list[str]
    expected_labels: float
    expected: dict[str, float]


def audit(path: Path, annotations: Sequence[Annotation]) -> Table:
    """Estimate precision, recall and F1 of all documents from the sample's annotations, and by quarter.

    Of a document that several people annotated, their mean counts.

    Raises:
        DataError: the sample cannot be read, or a stratum has fewer than two annotated documents.
    """
    with reading(path, fix="give what xmtc annotations sample wrote", what="not a sample"):
        sample = [Drawn.model_validate_json(line) for line in read_file(path).decode("utf-8-sig").split("\n") if line]
    if not sample:
        raise DataError(f"{path}: no documents in it; give what xmtc annotations sample wrote")
    given: dict[str, list[set[str]]] = defaultdict(list)
    for one in annotations:
        given[one.document].append(set(one.labels))
    drawn = [one for one in sample if one.id in given]
    counts = Counter(one.stratum for one in drawn)
    if few := [one.stratum for one in sample if counts[one.stratum] < min(_LEAST, one.documents)]:
        raise DataError(f"{path}: stratum {few[0]!r}: {counts[few[0]]} annotated documents: annotate more")
    rows = []
    for name in ("all", *sorted({one.stratum.partition(",")[0] for one in drawn})):
        some = [one for one in drawn if name in ("all", one.stratum.partition(",")[0])]
        strata, place_n = np.unique([one.stratum for one in some], return_inverse=True)
        sizes_H = np.array([next(one.documents for one in some if one.stratum == stratum) for stratum in strata])
        right_n = np.array([np.mean([len(own.intersection(one.labels)) for own in given[one.id]]) for one in some])
        given_n = np.array([np.mean([len(own) for own in given[one.id]]) for one in some])
        predicted_n = np.array([float(len(one.labels)) for one in some])
        hoped_n = predicted_n * [one.expected["precision"] for one in some]
        there_n = np.array([one.expected_labels for one in some])
        cells = []
        for right, wholes in ((hoped_n, (predicted_n, there_n)), (right_n, (predicted_n, given_n))):
            for whole_n in (*wholes, (wholes[0] + wholes[1]) / 2):
                value, *interval = stratified_ratio(right, whole_n, place_n, sizes_H)
                cells.append(percent(value, interval if right is right_n else None))
        pairs = [cell for k in range(3) for cell in (cells[k], cells[k + 3])]
        rows.append([name, f"{sizes_H.sum():,}", f"{len(some):,}", *pairs])
    columns = [cell for name in ("precision", "recall", "F1") for cell in (f"{name} expected, %", f"{name}, %")]
    caption = "Micro metrics of all documents, by quarters of expected F1, with 95 % intervals"
    return Table("audit", ["documents", "number", "annotated", *columns], rows, caption=caption)


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
    squares_H = np.bincount(strata_n, (rest_n - means_H[strata_n]) ** 2) / np.maximum(counts_H - 1, 1)
    variance = float((sizes_H**2 * (1 - counts_H / sizes_H) * squares_H / counts_H).sum())
    reach = float(student.ppf(0.975, max(len(top_n) - len(sizes_H), 1))) * variance**0.5 / whole
    return ratio, max(0.0, ratio - reach), min(1.0, ratio + reach)
