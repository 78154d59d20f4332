"""Labels in memory as scikit-learn has them: a list for each document, an indicator matrix, or one label each.

Suffixes: N documents, L classes.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from numbers import Number
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Matrix
from xmtc.data.config import Task
from xmtc.data.readers.cells import label_of, labels_of, listed
from xmtc.data.readers.in_memory import column_names, converted, values_of
from xmtc.errors import DataError

Form = Literal["one", "lists", "matrix", "sparse"]


@dataclass(frozen=True)
class Targets:
    """The labels of N documents, and the form in which they were given.

    Attributes:
        form: one label each, lists of labels, or an indicator matrix, dense or sparse.
        lists: the labels of each document as text, by which a model knows them.
        classes: by the text of each of the L labels, the label as it was given: a text or number; of a matrix, the name
            or number of its column. Sorted; columns are in their order.
    """

    form: Form
    lists: Sequence[Sequence[str]]
    classes: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def task(self) -> Task:
        """How many labels a document has."""
        return "single_label" if self.form == "one" else "multi_label"

    @classmethod
    def of(cls, y: Any) -> "Targets":
        """Read labels in any of these forms.

        Raises:
            DataError: they are in none of them, or a cell holds no labels; names the first.
        """
        if sparse.issparse(y):
            return _of_matrix(y, "sparse", range(y.shape[1]))
        if isinstance(y, np.ndarray) and y.ndim > 1:
            return _of_matrix(_as_matrix(y), "matrix", range(y.shape[1]))
        to_numpy = getattr(y, "to_numpy", None)
        if to_numpy is not None and hasattr(y, "columns"):
            return _of_matrix(_as_matrix(to_numpy()), "matrix", column_names(y))
        return _of_cells(values_of(y, "labels"))

    def given(self, lists: Sequence[Sequence[str]]) -> Any:
        """Write labels of other documents in the form in which these were given; documents of one label have one.

        Args:
            lists: labels of each document as text, all of them known.

        Returns:
            An array (N) of one label each, lists of labels, or an indicator matrix (N, L) of integers.
        """
        if self.form == "one":
            return np.array([self.classes[labels[0]] for labels in lists])
        if self.form == "lists":
            return [[self.classes[label] for label in labels] for labels in lists]
        columns = {label: column for column, label in enumerate(self.classes)}
        indices = [columns[label] for labels in lists for label in labels]
        ends = np.cumsum([0, *map(len, lists)])
        parts = (np.ones(len(indices), np.int64), indices, ends)
        indicator_NL = sparse.csr_array(parts, shape=(len(lists), len(self.classes)))
        return indicator_NL if self.form == "sparse" else indicator_NL.toarray()


def _of_cells(cells: Sequence[Any]) -> Targets:
    """Read a list of labels, or one label, of each document."""
    lists = converted("labels", cells, _labels)
    values: dict[str, Any] = {}
    is_one = True
    for cell in cells:
        entry = listed(cell)
        is_list = isinstance(entry, Sequence | Set) and not isinstance(entry, str)
        is_one = is_one and not is_list
        for item in entry if is_list else [entry]:
            label = label_of(item)
            if label is not None:
                values.setdefault(label, item if isinstance(item, Number) else label)
    if is_one and not all(lists):
        raise DataError(
            f"labels: item {lists.index(())} has no label; leave the document out, or give lists of labels"
        )
    try:
        ordered = sorted(values, key=lambda label: values[label])
    except TypeError:  # numbers among texts
        ordered = sorted(values)
    form: Form = "one" if is_one else "lists"
    return Targets(form, lists, {label: values[label] for label in ordered})


def _labels(cell: Any) -> tuple[str, ...]:
    labels, _ = labels_of(cell)
    return labels


def _as_matrix(values_NL: NDArray[Any]) -> Matrix:
    """Convert an array to a sparse matrix.

    Raises:
        DataError: it holds no numbers, or has other than two dimensions.
    """
    if values_NL.ndim != 2:
        raise DataError(
            f"labels: an array of {values_NL.ndim} dimensions; give one row for each document"
        )
    try:
        return sparse.csr_array(values_NL.astype(np.float64))
    except (TypeError, ValueError):
        raise DataError(
            "labels: a table of other values than zeros and ones; give such a matrix, or a list of labels for each text"
        ) from None


def _of_matrix(matrix_NL: Matrix, form: Form, names: Sequence[Any]) -> Targets:
    """Read an indicator matrix.

    Raises:
        DataError: it holds other values than zeros and ones, or two columns have one name.
    """
    indicator_NL = sparse.csr_array(matrix_NL)
    indicator_NL.sum_duplicates()
    indicator_NL.eliminate_zeros()
    if not np.all(indicator_NL.data == 1):
        raise DataError(
            "labels: a matrix of other values than zeros and ones; give 1 where a label fits, and else 0"
        )
    classes: dict[str, Any] = {}
    for name in names:
        label = label_of(name)
        if label is None or label in classes:
            raise DataError(f"labels: {name!r} names no column, or two; rename it")
        classes[label] = name
    labels = list(classes)
    lists = [
        [labels[column] for column in indicator_NL.indices[start:end]]
        for start, end in pairwise(indicator_NL.indptr)
    ]
    return Targets(form, lists, classes)
