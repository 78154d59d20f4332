"""The predictions of a scoring job as one flat CSV file: a row for each label of each document.

doc_id,label,name,score
"""

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
from xmtc.score.destination import Destination

COLUMNS = pa.schema(
    {
        "doc_id": pa.string(),
        "label": pa.string(),
        "name": pa.string(),
        "score": pa.float32(),
    }
)


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
        csv.CSVWriter(partial, COLUMNS) as writer,
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
    table = table.combine_chunks()
    counts = np.array([len(labels) for labels in table["labels"].to_pylist()], np.int64)
    rows = np.repeat(np.arange(len(table)), counts)
    labels = [label for labels in table["labels"].to_pylist() for label in labels]
    scores = [score for scores in table["scores"].to_pylist() for score in scores]
    columns = [
        table["doc_id"].take(pa.array(rows)),
        pa.array(labels, pa.string()),
        pa.array([names[label] for label in labels], pa.string()),
        pa.array(scores, pa.float32()),
    ]
    return pa.table(columns, schema=COLUMNS)
