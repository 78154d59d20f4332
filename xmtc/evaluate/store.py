"""The files of `eval/<split>/`: written whole or not at all, and read back.

Shapes: N documents, K kept predictions, L labels.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xmtc.data.arrow_files import write_parquet
from xmtc.data.readers.base import quoted_cell, quoted_label
from xmtc.data.readers.cells import label_of
from xmtc.errors import DataError
from xmtc.evaluate import layout
from xmtc.evaluate.bootstrap import Replicates
from xmtc.evaluate.evaluation import Evaluation
from xmtc.evaluate.spreadsheet import to_csv
from xmtc.evaluate.summary import markdown_summary
from xmtc.files import (
    read_json,
    reading,
    replacing_file,
    write_json,
    write_text,
    writing,
)
from xmtc.scorers.predictions import SparsePredictions

_BLOCK = 1 << 15
_PREDICTIONS_SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("labels", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        ("scores", pa.list_(pa.float32())),
    ]
)


def write_evaluation(
    folder: Path,
    evaluation: Evaluation,
    *,
    predictions: SparsePredictions | None = None,
    doc_ids: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> None:
    """Write `folder` (`eval/<split>/` of a run): metrics.json, per_label.parquet, per_label.csv, documents.parquet,
    replicates.parquet, details.json, summary.md, and predictions.parquet when predictions are given.

    Args:
        folder: created if absent; files of an earlier evaluation are replaced one by one, each whole.
        evaluation: from `evaluate`.
        predictions: to be written too, with `doc_ids` and `labels` (label of each id).
        doc_ids: N ids.
        labels: L labels.

    Raises:
        StorageError: something cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if predictions is not None:
            write_predictions(folder / layout.PREDICTIONS, predictions, doc_ids, labels)
        write_parquet(
            folder / layout.PER_LABEL,
            evaluation.per_label.schema,
            [evaluation.per_label],
        )
        _write_csv(folder / layout.PER_LABEL_CSV, evaluation.per_label)
        write_parquet(
            folder / layout.DOCUMENTS,
            evaluation.documents.schema,
            [evaluation.documents],
        )
        if evaluation.replicates is not None:
            table = _replicates_table(evaluation.replicates)
            write_parquet(folder / layout.REPLICATES, table.schema, [table])
        write_json(folder / layout.DETAILS, evaluation.details)
        write_text(
            folder / layout.SUMMARY,
            markdown_summary(evaluation.metrics, f"Evaluation on {folder.name}"),
        )
        write_json(folder / layout.METRICS, evaluation.metrics, indent=2)


def _replicates_table(replicates: Replicates) -> pa.Table:
    columns = {
        name: pa.array(values, pa.float64())
        for name, values in replicates.values.items()
    }
    return pa.table(columns).replace_schema_metadata({"identity": replicates.identity})


def _write_csv(path: Path, per_label: pa.Table) -> None:
    """Write some labels at a time, because the text of a million takes more memory than the table."""
    with (
        replacing_file(path) as partial,
        partial.open("w", encoding="utf-8", newline="") as file,
    ):
        for start in range(0, max(1, len(per_label)), _BLOCK):
            frame = per_label.slice(start, _BLOCK).to_pandas()
            shown = frame.assign(confused_with=frame["confused_with"].map(" ".join))
            file.write(to_csv(shown, header=start == 0))


def read_replicates(path: Path) -> Replicates:
    """Read replicates.parquet.

    Raises:
        DataError: it is missing or damaged.
    """
    table = read_table(path)
    identity = (table.schema.metadata or {}).get(b"identity")
    if identity is None:
        raise DataError(
            f"{path}: does not say which documents it belongs to; evaluate the run again"
        )
    return Replicates(
        {name: table[name].to_numpy() for name in table.column_names}, identity.decode()
    )


def read_table(path: Path) -> pa.Table:
    """Read a table that `write_evaluation` wrote.

    Raises:
        DataError: it is missing or damaged.
    """
    with reading(path, fix="evaluate the run again", what="cannot be read as Parquet"):
        return pq.read_table(path)


def write_predictions(
    path: Path,
    predictions: SparsePredictions,
    doc_ids: Sequence[str],
    labels: Sequence[str],
) -> None:
    """Write predictions.parquet: doc_id, labels (list of strings), scores (list of floats), best first.

    Labels are dictionary-encoded; memory beyond the predictions is that of some 32,768 documents.
    """
    tables = _prediction_tables(predictions, doc_ids, pa.array(labels, pa.string()))
    write_parquet(path, _PREDICTIONS_SCHEMA, tables)


def _prediction_tables(
    predictions: SparsePredictions, doc_ids: Sequence[str], dictionary: pa.Array
) -> Iterator[pa.Table]:
    """Yield the predictions of some documents at a time; `dictionary` has the labels by id."""
    for start in range(0, len(predictions), _BLOCK):
        ids_BK = predictions.label_ids_NK[start : start + _BLOCK]
        scores_BK = predictions.scores_NK[start : start + _BLOCK]
        used_BK = ids_BK >= 0
        offsets = pa.array(np.append(0, np.cumsum(used_BK.sum(axis=1))), pa.int32())
        codes = pa.DictionaryArray.from_arrays(
            pa.array(ids_BK[used_BK], pa.int32()), dictionary
        )
        columns = [
            pa.array(doc_ids[start : start + len(ids_BK)], pa.string()),
            pa.ListArray.from_arrays(offsets, codes),
            pa.ListArray.from_arrays(offsets, pa.array(scores_BK[used_BK])),
        ]
        yield pa.Table.from_arrays(columns, schema=_PREDICTIONS_SCHEMA)


def read_predictions(
    path: Path, labels: Sequence[str], doc_ids: Sequence[str], top_k: int
) -> SparsePredictions:
    """Read a predictions file of any system and put it in the order of `doc_ids`.

    Args:
        path: Parquet with doc_id, labels and scores (lists, in any order within a document), or the output directory of
            `xmtc score`.
        labels: known labels, by label id.
        doc_ids: documents wanted, in this order; the file must hold exactly these.
        top_k: kept per document.

    Raises:
        DataError: a column is missing or of another type; documents are missing, unknown or twice; a label is unknown
            or twice; lists differ in length; scores lie outside 0…1.
    """
    table = _read_columns(path)
    order = _join(path, table["doc_id"].to_pylist(), doc_ids)
    ids_NK = np.full((len(doc_ids), top_k), -1, np.int32)
    scores_NK = np.zeros((len(doc_ids), top_k), np.float32)
    known = pd.Index(np.array(list(labels), object))
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        block = table.take(pa.array(rows)).combine_chunks()
        target = slice(start, start + len(rows))
        _fill(path, block, known, ids_NK[target], scores_NK[target])
    predictions = SparsePredictions(ids_NK, scores_NK)
    width = int((ids_NK >= 0).sum(axis=1).max(initial=1))
    predictions = predictions.top(max(width, 1))
    predictions.check(len(labels), doc_ids, str(path))
    return predictions


def _read_columns(path: Path) -> pa.Table:
    if path.is_dir():
        return pa.concat_tables([_read_columns(part) for part in _parts(path)])
    if not path.exists():
        raise DataError(f"{path}: no such predictions file")
    with reading(
        path,
        fix="predictions are Parquet with doc_id, labels, scores",
        what="not a Parquet file",
    ):
        schema = pq.read_schema(path)
        for name, wanted in _COLUMNS.items():
            if name not in schema.names:
                raise DataError(
                    f"{path}: no column {name!r}; predictions need {_NEEDED}"
                )
            if not wanted(schema.field(name).type):
                raise DataError(
                    f"{path}: column {name!r} is {schema.field(name).type}; predictions need {_NEEDED}"
                )
        return pq.read_table(path, columns=list(_COLUMNS))


def _is_text(kind: pa.DataType) -> bool:
    return (
        _is_text(kind.value_type)
        if pa.types.is_dictionary(kind)
        else _any_of(kind, "string", "large_string")
    )


def _is_list(kind: pa.DataType, of: Callable[[pa.DataType], bool]) -> bool:
    """Whether this is a list of such values, or of nulls, if every list of the file is empty."""
    lists = _any_of(kind, "list", "large_list", "fixed_size_list")
    return lists and (of(kind.value_type) or pa.types.is_null(kind.value_type))


def _any_of(kind: pa.DataType, *names: str) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "doc_id": _is_text,
    "labels": lambda kind: _is_list(kind, _is_text),
    "scores": lambda kind: _is_list(
        kind, lambda value: _any_of(value, "floating", "integer", "decimal")
    ),
}
_NEEDED = "doc_id (string), labels (list of strings) and scores (list of floats)"


def _parts(directory: Path) -> list[Path]:
    """List the files that a finished scoring job wrote."""
    manifest = directory / layout.SCORES
    if not manifest.is_file():
        raise DataError(
            f"{manifest}: missing; a folder of predictions is the output of `xmtc score`, when it is done"
        )
    with reading(manifest, fix="score again, into another folder"):
        return [directory / part["path"] for part in read_json(manifest)["parts"]]


def _join(path: Path, ids_in_file: list[str], gold_ids: Sequence[str]) -> np.ndarray:
    """Find the file's row of each gold document."""
    row_of_id = {doc_id: row for row, doc_id in enumerate(ids_in_file)}
    if len(row_of_id) < len(ids_in_file):
        repeated = next(
            doc_id for row, doc_id in enumerate(ids_in_file) if row_of_id[doc_id] != row
        )
        raise DataError(
            f"{path}: document {quoted_cell(repeated)} has more than one row; keep one"
        )
    missing = [doc_id for doc_id in gold_ids if doc_id not in row_of_id]
    if missing:
        raise DataError(
            f"{path}: {len(missing):,} of {len(gold_ids):,} gold documents have no predictions, the first is "
            f"{quoted_cell(missing[0])}; add a row for each (an empty list predicts nothing)"
        )
    additional = len(ids_in_file) - len(gold_ids)
    if additional > 0:
        unknown = next(iter(row_of_id.keys() - set(gold_ids)))
        raise DataError(
            f"{path}: {additional:,} documents are not in the gold split, such as {quoted_cell(unknown)}; take them "
            "out or choose their split"
        )
    return np.array([row_of_id[doc_id] for doc_id in gold_ids], np.int64)


def _fill(
    path: Path,
    block: pa.Table,
    known: pd.Index,
    ids_BK: np.ndarray,
    scores_BK: np.ndarray,
) -> None:
    """Put a block's predictions into its rows, best first, cut to their width."""
    lists = block["labels"].combine_chunks()
    scores = block["scores"].combine_chunks()
    lengths = _list_lengths(lists)
    unequal = lengths != _list_lengths(scores)
    if unequal.any():
        doc_id = block["doc_id"][int(np.argmax(unequal))].as_py()
        raise DataError(
            f"{path}: the lists of labels and scores of document {quoted_cell(doc_id)} differ in length; give each "
            "label one score"
        )
    label_ids = _label_ids(path, lists.flatten(), known)
    values = scores.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(rows)) - np.repeat(starts, lengths)
    best_first = np.lexsort((-values, rows))
    fits = places < ids_BK.shape[1]
    ids_BK[rows[fits], places[fits]] = label_ids[best_first][fits]
    scores_BK[rows[fits], places[fits]] = values[best_first][fits]


def _list_lengths(column: pa.Array) -> np.ndarray:
    """How many values each list has; a null has none."""
    return (
        pc.call_function("list_value_length", [column])
        .fill_null(0)
        .to_numpy(zero_copy_only=False)
    )


def _label_ids(path: Path, flat: pa.Array, known: pd.Index) -> np.ndarray:
    """Find the ids of labels."""
    coded = flat if pa.types.is_dictionary(flat.type) else flat.dictionary_encode()
    labels = np.array(
        [label_of(value) for value in coded.dictionary.to_pylist()], object
    )
    ids_of_codes = np.append(
        known.get_indexer(labels), -1
    )  # a null has the code −1, which reads the last
    label_ids = ids_of_codes[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    if (label_ids < 0).any():
        first = flat[int(np.argmax(label_ids < 0))].as_py()
        raise DataError(
            f"{path}: label {quoted_label(str(first))} is not in the gold corpus; predict its labels only"
        )
    return label_ids.astype(np.int32)
