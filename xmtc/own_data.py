"""`xmtc.train`: trains on texts and labels in memory, as `xmtc init` and `xmtc train` do on files."""

import re
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
from xmtc.data.fields import FieldText
from xmtc.data.readers.base import LONGEST_DOCUMENT, check_characters, check_length
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
from xmtc.init.answers import Answers
from xmtc.init.budget import seconds_of
from xmtc.init.plan import make_plan
from xmtc.init.summary import summary
from xmtc.pipeline import train_run
from xmtc.predict.arguments import as_count
from xmtc.predict.predictor import Model
from xmtc.run.config import RUN_NAME, SEEDS
from xmtc.track.console import print_line

_TEXT = "text"
"""Column with the text, unless the user names others."""
_LABELS = "labels"
"""Column with the labels, unless the user names another."""
_DOCUMENTS = "documents.parquet"
"""File of the run's folder with the documents."""


def train(
    texts: Any,
    labels: Any = None,
    *,
    budget: str = "1h",
    directory: str | Path | None = None,
    text: str | int | Sequence[str | int] = _TEXT,
    label_column: str | int = _LABELS,
    task: Task | None = None,
    seed: int | None = None,
) -> Model:
    """Train the best known recipe that fits a time budget on this machine.

    Args:
        texts: a list, a Series or a column of texts; or a table: a DataFrame, an Arrow table, a Hugging Face `Dataset`,
            a mapping of columns. Without `labels`, the table has them as well.
        labels: one label or a list of labels for each text; an empty list where no label fits.
        budget: time that the run may take, such as `10m`.
        directory: folder of the run, new or empty, with model, report and corpus in it; a run of the same documents
            that is there is continued. If absent, a temporary folder whose name is printed.
        text: text column or columns of a table; pandas counts columns that have no names.
        label_column: label column of a table.
        task: `multi_label` or `single_label`; inferred from the labels if absent.
        seed: fixes initialisation, the order of documents and every sampled choice; if absent, the default of `seed` in
            a configuration.

    Returns:
        The model; its report is in the directory.

    Raises:
        ConfigError: there is no such task, the budget is no time, the seed is none, or the directory is no path, has a
            name that a run cannot have, or holds other files.
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
    if seed is not None and as_count(seed, "seed", 0) >= SEEDS:
        raise ConfigError(f"seed={seed}: give a whole number below {SEEDS:,}")
    table = documents_table(texts, labels, text_columns, label_column)
    root = Path(directory or tempfile.mkdtemp(prefix="xmtc-")).absolute()
    path = root / _DOCUMENTS
    _make_folder(root)
    was_there = path.exists()
    _write(table, path)
    try:
        plan = make_plan(
            str(path),
            Answers(text=text_columns, labels=label_column, task=task),
            budget_s,
            root.name,
        )
    except DataError:
        if not was_there:
            path.unlink()  # documents from which nothing can be learnt must not keep others away
        raise
    print_line("\n".join(summary(plan)))
    config = plan.config
    config = replace(
        config,
        seed=config.seed if seed is None else seed,
        data=replace(config.data, corpus=str(root / "corpus")),
        track=replace(config.track, directory=str(root.parent)),
    )
    run = train_run(config)
    print_line(f"everything is in {root}")
    return Model.from_pretrained(run)


def _make_folder(root: Path) -> None:
    """Make the folder of a run; one that is there is empty, or holds a run of documents in memory.

    Raises:
        ConfigError: it holds other files, or its name is not a run's.
        StorageError: it cannot be made.
    """
    if not re.fullmatch(RUN_NAME, root.name):
        raise ConfigError(
            f"directory={str(root)!r}: a run's folder has letters, digits, '_', '-', and '.' after the first, in its "
            "name; change it"
        )
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in root.iterdir()}
    if names and _DOCUMENTS not in names:
        raise ConfigError(
            f"{root}: holds other files, such as {min(names)}; give a new folder"
        )


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
        texts: texts, or a table with the text columns, and with the label column if `labels` is None.
        labels: labels of each text, or None.
        text_columns: names of the text columns.
        label_column: name of the label column.

    Raises:
        DataError: texts and labels do not match, a column is missing, a cell holds something else, or a document is
            too long.
    """
    if label_column in text_columns:
        raise DataError(
            f"the column {label_column!r} cannot hold both text and labels; name another one"
        )
    if labels is None and not column_names(texts):
        raise DataError(
            "labels: none given, and texts is not a table with columns; give both, or a table"
        )
    if labels is None:
        columns = {
            name: column_of(texts, name) for name in (*text_columns, label_column)
        }
    elif column_names(texts):
        columns = {name: column_of(texts, name) for name in text_columns}
        columns[label_column] = values_of(labels, "labels")
    elif list(text_columns) != [_TEXT]:
        raise DataError(
            f"text={list(text_columns)} names columns, and texts is not a table; leave it out"
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
    fields = [arrays[name].to_pylist() for name in text_columns]
    converted(" + ".join(text_columns), zip(*fields, strict=True), _check_document)
    return pa.table(arrays)


def _check_document(parts: Sequence[str | None]) -> None:
    text = FieldText.join([part or "" for part in parts])
    check_length(text, LONGEST_DOCUMENT)


def _labels(cell: Any) -> tuple[str, ...]:
    labels, _ = labels_of(cell)
    check_characters(*labels)
    return labels


def _text(cell: Any) -> str | None:
    text = text_of(cell)
    check_characters(text or "")
    return text
