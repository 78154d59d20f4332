"""`xmtc.train`: trains on texts and labels in memory, as `xmtc init` and `xmtc train` do on files."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from xmtc.data.arrow_files import write_parquet
from xmtc.data.config import Task
from xmtc.data.readers.base import check_characters
from xmtc.data.readers.cells import labels_of, text_of
from xmtc.data.readers.in_memory import (
    check_lengths,
    column_names,
    column_of,
    converted,
    values_of,
)
from xmtc.errors import ConfigError, DataError
from xmtc.files import reading, writing
from xmtc.init.command import seconds_of
from xmtc.init.plan import make_plan
from xmtc.init.roles import Answers
from xmtc.init.summary import summary
from xmtc.pipeline import train_run
from xmtc.predict.predictor import Model
from xmtc.track.console import print_line

_TEXT = "text"
"""Column with the text, unless the user names others."""
_LABELS = "labels"
"""Column with the labels, unless the user names another."""


def train(
    texts: Any,
    labels: Any = None,
    *,
    budget: str = "1h",
    directory: str | Path | None = None,
    text: str | int | Sequence[str | int] = _TEXT,
    label_column: str | int = _LABELS,
    task: Task | None = None,
) -> Model:
    """Train the best known recipe that fits a time budget on this machine.

    Args:
        texts: a list, a Series or a column of texts; or, without `labels`, a table with both: a DataFrame, an Arrow
            table, a Hugging Face `Dataset`, a mapping of columns.
        labels: one label or a list of labels for each text; an empty list where no label fits.
        budget: time that the run may take, such as `10m`.
        directory: folder for corpus, run and report; if absent, a temporary folder whose name is printed.
        text: text column or columns of a table; pandas counts columns that have no names.
        label_column: label column of a table.
        task: `multi_label` or `single_label`; inferred from the labels if absent.

    Returns:
        The model; its report is in the directory.

    Raises:
        ConfigError: there is no such task, the budget is no time, or the directory no path.
        DataError: texts and labels do not match, nothing can be learnt from them, or the directory holds
            other documents.
        StorageError: nothing can be written there.

    Example:
        >>> model = xmtc.train(["a text", …], [["label"], …], budget="10m")
        >>> model.predict(["another text"])
    """
    text_columns = _names_of(text)
    label_column = str(label_column)
    budget_s = seconds_of(budget)
    if task not in (None, *get_args(Task)):
        raise ConfigError(
            f"task={task!r}: give {' or '.join(get_args(Task))}, or leave it out"
        )
    if not isinstance(directory, str | PathLike | None):
        raise ConfigError(
            f"directory={directory!r}: give the path of a folder, or leave it out"
        )
    table = documents_table(texts, labels, text_columns, label_column)
    root = (
        Path(directory)
        if directory is not None
        else Path(tempfile.mkdtemp(prefix="xmtc-"))
    )
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
    path = root / "documents.parquet"
    was_there = path.exists()
    _write(table, path)
    try:
        plan = make_plan(
            str(path),
            Answers(text=text_columns, labels=label_column, task=task),
            budget_s,
            "model",
        )
    except DataError:
        if not was_there:
            path.unlink()  # documents from which nothing can be learnt must not keep others away
        raise
    print_line("\n".join(summary(plan)))
    config = plan.config
    data = replace(config.data, corpus=str(root / "corpus"))
    track = replace(config.track, directory=str(root / "runs"))
    run = train_run(replace(config, data=data, track=track))
    print_line(f"everything is in {root}")
    return Model.from_pretrained(run / "model")


def _names_of(text: str | int | Sequence[str | int]) -> list[str]:
    """List the names of text columns, of which there may be one or several."""
    if isinstance(text, Iterable) and not isinstance(text, str | bytes):
        return [str(name) for name in text]
    return [str(text)]


def _write(table: pa.Table, path: Path) -> None:
    """Write the documents to a file; an earlier start may have written the same ones, others are not replaced."""
    if not path.exists():
        with writing(path):
            write_parquet(path, table.schema, [table])
        return
    with reading(path, fix="give another directory, or move the file away"):
        same = pq.read_table(path).equals(table)
    if not same:
        raise DataError(
            f"{path}: holds other documents; give another directory, or move the file away"
        )


def documents_table(
    texts: Any, labels: Any, text_columns: Sequence[str], label_column: str
) -> pa.Table:
    """Convert text and label columns to Arrow: strings, and lists of strings.

    Args:
        texts: texts, or a table with all columns if `labels` is None.
        labels: labels of each text.
        text_columns: names of the text columns.
        label_column: name of the label column.

    Raises:
        DataError: texts and labels do not match, a column is missing, or a cell holds something else.
    """
    if labels is None and not column_names(texts):
        raise DataError(
            "labels: none given, and texts is not a table with columns; give both, or a table"
        )
    if labels is None:
        columns = {
            name: column_of(texts, name) for name in (*text_columns, label_column)
        }
    elif list(text_columns) != [_TEXT]:
        raise DataError(
            "text names columns of a table; leave it out where texts and labels are given apart"
        )
    else:
        columns = {
            _TEXT: values_of(texts, "texts"),
            label_column: values_of(labels, "labels"),
        }
    check_lengths(columns)
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if name == label_column:
            arrays[name] = pa.array(
                converted(name, values, _labels), pa.list_(pa.string())
            )
        else:
            arrays[name] = pa.array(converted(name, values, _text), pa.string())
    return pa.table(arrays)


def _labels(cell: Any) -> tuple[str, ...]:
    labels, _ = labels_of(cell)
    check_characters(*labels)
    return labels


def _text(cell: Any) -> str | None:
    text = text_of(cell)
    check_characters(text or "")
    return text
