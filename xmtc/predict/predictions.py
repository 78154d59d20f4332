"""Predictions as users get them: the labels of a text, best first, what to expect of them, and tables of many."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import csv

from xmtc.files import replacing_file, writing
from xmtc.predict.evidence import Evidence

if TYPE_CHECKING:
    import pandas as pd

FLAT = pa.schema(
    {
        "doc_id": pa.string(),
        "label": pa.string(),
        "name": pa.string(),
        "score": pa.float32(),
        "predicted": pa.bool_(),
    }
)
"""A row for each label of each text, best first."""
_SHOWN = 20
"""Texts whose labels a notebook shows."""
_BAR = "background:#4269d0;height:.7em;width:{width:.1%};min-width:1px"


class Prediction(NamedTuple):
    """A label of a text.

    Attributes:
        label: label, as in the training data.
        score: probability.
        name: readable name of the label; the label itself if it has none.
        evidence: the words, names and training documents with the greatest contributions to the label's logit,
            greatest first; empty unless requested.
        predicted: whether the model's decision gives it to the text.
    """

    label: str
    score: float
    name: str
    evidence: tuple[Evidence, ...] = ()
    predicted: bool = False


class Expected(NamedTuple):
    """What to expect of the labels that a text gets.

    Attributes:
        precision: share of them that are right; None if the text gets none.
        recall: share of the right labels that are among them.
        f1: harmonic mean of both; 0 if the text gets none.
    """

    precision: float | None
    recall: float
    f1: float


class Predictions(list[Prediction]):
    """The labels of a text, best first. In a notebook, they are shown as bars.

    Attributes:
        expected: what to expect of those that the model's decision, or the requested one, gives to the text.
    """

    def __init__(self, labels: Iterable[Prediction], expected: Expected) -> None:
        super().__init__(labels)
        self.expected = expected

    def _repr_html_(self) -> str:
        return _table_of_bars(_bars(self))


class PredictedTexts(list[Predictions]):
    """The predictions of several texts, in their order: a list, which is also a table of all labels."""

    def to_table(self, doc_ids: Sequence[str] | None = None) -> pa.Table:
        """Return a flat Arrow table with a row for each label of each text, best first, see `FLAT`.

        Args:
            doc_ids: an identifier for each text. Default: their numbers, from 0.
        """
        if doc_ids is None:
            doc_ids = [str(number) for number in range(len(self))]
        rows = [
            {
                "doc_id": doc_id,
                "label": prediction.label,
                "name": prediction.name,
                "score": prediction.score,
                "predicted": prediction.predicted,
            }
            for doc_id, predictions in zip(doc_ids, self, strict=True)
            for prediction in predictions
        ]
        return pa.Table.from_pylist(rows, FLAT)

    def to_pandas(self, doc_ids: Sequence[str] | None = None) -> "pd.DataFrame":
        """Return the same as a DataFrame."""
        return self.to_table(doc_ids).to_pandas()

    def to_csv_text(self, doc_ids: Sequence[str] | None = None) -> str:
        """Return the same as the text of a CSV file, with a header."""
        return csv_text(self.to_table(doc_ids))

    def to_csv(self, path: str | Path, doc_ids: Sequence[str] | None = None) -> None:
        """Write the same as a CSV file, with a header.

        Raises:
            StorageError: the file cannot be written.
        """
        with writing(path), replacing_file(Path(path)) as partial:
            csv.write_csv(self.to_table(doc_ids), partial)

    def _repr_html_(self) -> str:
        rows = []
        for number, predictions in enumerate(self[:_SHOWN]):
            rows.append(
                f'<tr><th colspan="3" style="text-align:left">text {number}</th></tr>'
            )
            rows += _bars(predictions)
        if len(self) > _SHOWN:
            rows.append(
                f'<tr><td colspan="3">and {len(self) - _SHOWN:,} texts more</td></tr>'
            )
        return _table_of_bars(rows)


def csv_text(table: pa.Table, *, header: bool = True) -> str:
    """Write a flat table as the text of a CSV file."""
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=header))
    return sink.getvalue().to_pybytes().decode()


def _bars(predictions: Sequence[Prediction]) -> list[str]:
    """Make a table row for each label: its name, its probability as a bar and as a number; predicted ones are bold."""
    rows = []
    for prediction in predictions:
        name = escape(prediction.name)
        shown = f"<b>{name}</b>" if prediction.predicted else name
        bar = f'<div style="{_BAR.format(width=prediction.score)}"></div>'
        cells = (
            f'<td style="text-align:left" title="{escape(prediction.label)}">{shown}</td>',
            f'<td style="width:12em">{bar}</td>',
            f"<td>{prediction.score:.3f}</td>",
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return rows


def _table_of_bars(rows: Sequence[str]) -> str:
    return f"<table>{''.join(rows)}</table>"
