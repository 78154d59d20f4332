"""`xmtc.train`: trains on texts and labels in memory, as `xmtc init` and `xmtc train` do on files."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from xmtc.data.config import Task
from xmtc.data.readers.arrow_table import class_names
from xmtc.data.readers.cells import labels_of, named, plain, text_of
from xmtc.errors import DataError
from xmtc.files import reading, replacing, writing
from xmtc.init.command import make_plan, seconds_of, summary
from xmtc.init.roles import Answers
from xmtc.pipeline import train_run
from xmtc.predict.predictor import Model
from xmtc.run.config import RunConfig
from xmtc.track.console import print_line

_TEXT, _LABELS = "text", "labels"
T = TypeVar("T")


def train(
    texts: Any,
    labels: Any = None,
    *,
    budget: str = "1h",
    directory: str | Path | None = None,
    text: str | Sequence[str] = _TEXT,
    label_column: str = _LABELS,
    task: Task | None = None,
) -> Model:
    """Train the best known recipe that fits a time budget on this machine.

    Args:
        texts: a list, a Series or a column of texts; or, without `labels`, a table with both: a DataFrame, an Arrow
            table, a Hugging Face `Dataset`, a mapping of columns.
        labels: one label or a list of labels for each text; an empty list where no label fits.
        budget: time that the run may take, such as `10m`.
        directory: folder for corpus, run and report; if absent, a temporary folder whose name is printed.
        text: text column or columns of a table.
        label_column: label column of a table.
        task: `multi_label` or `single_label`; inferred from the labels if absent.

    Returns:
        The model; its report is in the directory.

    Raises:
        DataError: texts and labels do not match, nothing can be learnt from them, or the directory holds
            other documents.

    Example:
        >>> model = xmtc.train(["a text", …], [["label"], …], budget="10m")
        >>> model.predict(["another text"])
    """
    names = [text] if isinstance(text, str) else list(text)
    table = _table(texts, labels, names, label_column)
    root = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="xmtc-"))
    root.mkdir(parents=True, exist_ok=True)
    path = _written(table, root / "documents.parquet")
    answers = Answers(text=names, labels=label_column, task=task)
    plan = make_plan(str(path), answers, seconds_of(budget), "model")
    for line in summary(plan):
        print_line(line)
    run = train_run(_inside(plan.config, root))
    print_line(f"everything is in {root}")
    return Model.from_pretrained(run / "model")


def _written(table: pa.Table, path: Path) -> Path:
    """Write the documents to a file; an earlier start may have written the same ones, others are not replaced."""
    if not path.exists():
        with writing(path), replacing(path) as partial:
            pq.write_table(table, partial)
        return path
    with reading(path, fix="give another directory, or move the file away"):
        same = pq.read_table(path).equals(table)
    if not same:
        raise DataError(f"{path}: holds other documents; give another directory, or move the file away")
    return path


def _inside(config: RunConfig, root: Path) -> RunConfig:
    """Make the configuration with corpus and run in a folder."""
    return replace(
        config,
        data=replace(config.data, corpus=str(root / "corpus")),
        track=replace(config.track, directory=str(root / "runs")),
    )


def _table(texts: Any, labels: Any, names: list[str], label_column: str) -> pa.Table:
    """Convert text and label columns to Arrow."""
    if labels is not None:
        columns = {_TEXT: _values(texts), label_column: _values(labels)}
        if names != [_TEXT]:
            raise DataError("text names columns of a table; leave it out where texts and labels are given apart")
    else:
        columns = {name: _values(_column(texts, name)) for name in (*names, label_column)}
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{number:,} in {name}" for name, number in sizes.items())
        raise DataError(f"texts and labels must be of one length; there are {shown}")
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if name == label_column:
            arrays[name] = pa.array(_converted(name, values, lambda cell: labels_of(cell)[0]), pa.list_(pa.string()))
        else:
            arrays[name] = pa.array(_converted(name, values, text_of), pa.string())
    return pa.table(arrays)


def _converted(name: str, values: list[Any], convert: Callable[[Any], T]) -> list[T]:
    """Convert cells; an error names the first that cannot be converted."""
    done: list[T] = []
    try:
        done.extend(map(convert, values))
    except ValueError as problem:
        raise DataError(f"{name}: item {len(done)} {problem}") from None
    return done


def _column(table: Any, name: str) -> Any:
    """Get a column of a DataFrame, an Arrow table, a `Dataset` or a mapping."""
    if isinstance(table, str) or not (hasattr(table, "__getitem__") and _names(table)):
        raise DataError("labels: none given, and texts is not a table with columns; give both, or a table")
    if name not in _names(table):
        raise DataError(f"no column {name!r} in the table; there are: {', '.join(_names(table))}")
    names = _class_names(table, name)
    return table[name] if names is None else _converted(name, _values(table[name]), lambda cell: named(cell, names))


def _class_names(table: Any, name: str) -> Sequence[str] | None:
    """Return the names of the numbers of a `ClassLabel` column, or of a list of them, of a `Dataset` or Arrow table."""
    if isinstance(table, pa.Table):
        return class_names(table.schema).get(name)
    feature = getattr(table, "features", {}).get(name) if hasattr(table, "column_names") else None
    feature = getattr(feature, "feature", feature)
    return getattr(feature, "names", None)


def _names(table: Any) -> list[str]:
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    return [] if names is None else [str(name) for name in names]


def _values(column: Any) -> list[Any]:
    """Convert the values of a column to Python objects."""
    if isinstance(column, str) or not isinstance(column, Iterable):
        raise DataError(f"a {type(column).__name__} is not a list of texts or labels")
    return list(plain(column))
