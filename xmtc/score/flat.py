"""The predictions of a scoring job as one flat CSV file, with the columns that `xmtc predict --csv` writes."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from xmtc.data.labels import LabelTable
from xmtc.errors import StorageError
from xmtc.files import replacing_file, writing
from xmtc.predict.predictions import FLAT
from xmtc.score.destination import Destination


def write_flat_csv(
    path: Path, output: Destination, manifest: dict[str, Any], labels: LabelTable
) -> None:
    """Write the labels of all documents of a finished job, part by part, best first.

    Args:
        path: the file.
        output: where the job's parts are.
        manifest: the job's manifest, which names its parts.
        labels: labels of the model, for their names.

    Raises:
        StorageError: a part has been removed meanwhile, or the file cannot be written.
    """
    names = {
        label: name or label
        for label, name in zip(labels.labels, labels.names, strict=True)
    }
    with (
        writing(path),
        replacing_file(path) as partial,
        csv.CSVWriter(partial, FLAT) as writer,
    ):
        for part in manifest["parts"]:
            content = output.read(part["path"])
            if content is None:
                raise StorageError(
                    f"{output}: {part['path']} has been removed meanwhile; score again"
                )
            writer.write_table(_flat(pq.read_table(io.BytesIO(content)), names))


def _flat(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """Repeat each document for its labels."""
    labels, scores, predicted = (
        table[name].combine_chunks() for name in ("labels", "scores", "predicted")
    )
    rows = np.repeat(np.arange(len(table)), labels.value_lengths().to_numpy())
    columns = [
        table["doc_id"].take(pa.array(rows)),
        labels.flatten(),
        pa.array([names[label] for label in labels.flatten().to_pylist()], pa.string()),
        scores.flatten(),
        predicted.flatten(),
    ]
    return pa.table(columns, schema=FLAT)
