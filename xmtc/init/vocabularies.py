"""Find the column of a SKOS vocabulary that the labels of documents refer to."""

from itertools import islice

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.cells import labels_of
from xmtc.data.readers.skos import SKOS_FORMATS, TERMS, SkosTable
from xmtc.errors import DataError
from xmtc.init.data_files import DataFiles
from xmtc.init.roles import Roles

_ROWS = 1000  # number of documents whose labels are looked up


def label_columns(files: DataFiles, roles: Roles) -> dict[str, str]:
    """Choose settings for a label file that is a SKOS vocabulary; empty for other tables.

    Raises:
        DataError: no label of the first documents is in the vocabulary.
    """
    path = files.local[files.labels or ""]
    syntax = next((SKOS_FORMATS[ending] for ending in reversed(path.suffixes) if ending in SKOS_FORMATS), None)
    if syntax is None:
        return {}
    labels, concepts = _labels(files, roles), list(SkosTable(syntax).rows(path, None))
    cells = [row.cells for row in concepts if not isinstance(row, Rejected)]
    found = {term: len(labels & {label for row in cells for label in labels_of(row[term])[0]}) for term in TERMS}
    best = max(found, key=lambda term: found[term])
    if not found[best]:
        raise DataError(
            f"{files.labels}: no label of {roles.labels!r} is a concept's IRI, the last part of one, or a notation; "
            "name another column with --labels, or move the vocabulary away"
        )
    return {"label": best, "parents": TERMS[best]}


def _labels(files: DataFiles, roles: Roles) -> set[str]:
    """Read the labels of the first documents."""
    first = files.local[files.by_split["train"][0]]
    rows = [row for row in islice(files.format().rows(first, None), _ROWS) if not isinstance(row, Rejected)]
    return {label for row in rows for label in labels_of(row.cells.get(roles.labels), roles.separator)[0]}
