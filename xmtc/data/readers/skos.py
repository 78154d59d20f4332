"""Vocabularies in SKOS (Turtle, RDF/XML, N-Triples): concepts as the rows of a label file.

A row has the columns `label` (the concept's IRI), `id` (what follows its last / or #), `notation`, `name` (English
if there is one, else without a language, else in the first language), `name_xx` for each language, and the broader
concepts in the terms of each: `parents`, `parent_ids`, `parent_notations`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax import SAXParseException

from typing_extensions import override

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import open_text
from xmtc.data.readers.table import Row, RowCount, TableFormat
from xmtc.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rdflib import Graph

SKOS_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt"}
"""Names of the syntax, as rdflib calls them, by a file's ending."""
TERMS = {"label": "parents", "notation": "parent_notations", "id": "parent_ids"}
"""Columns that documents' labels may be, each with the column of broader concepts."""


class SkosTable(TableFormat):
    """A `TableFormat`."""

    def __init__(self, syntax: str) -> None:
        self.syntax, self.identity = syntax, f"skos {syntax}"

    @override
    def rows(self, path: Path, columns: ColumnsConfig | None) -> Iterator[Row | Rejected]:
        """Concepts in the order of their IRIs."""
        graph = _read(path, self.syntax)
        cells = _concepts(graph)
        if not cells:
            raise DataError(f"{path}: no skos:Concept in this file; give a SKOS vocabulary")
        for number, concept in enumerate(sorted(cells), start=1):
            yield Row(cells[concept], f"{path}: concept {concept}", number)

    @override
    def count(self, path: Path) -> RowCount:
        """Nobody knows before the file is read."""
        return RowCount(None, exact=False)


def _read(path: Path, syntax: str) -> "Graph":
    try:
        from rdflib import Graph
        from rdflib.exceptions import ParserError
        from rdflib.plugins.parsers.notation3 import BadSyntax
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}: SKOS needs the package rdflib: pip install 'xmtc[skos]'") from error
    try:
        with open_text(path) as text:
            return Graph().parse(data=text.read(), format=syntax)
    except (BadSyntax, ParserError, SAXParseException) as error:
        line = f":{error.lines + 1}" if isinstance(error, BadSyntax) else ""
        line = f":{error.getLineNumber()}" if isinstance(error, SAXParseException) else line
        raise DataError(f"{path}{line}: not {syntax} as RDF has it; correct the file, or its ending") from error


def _concepts(graph: "Graph") -> dict[str, dict[str, Any]]:
    """Collect the cells of each concept, by its IRI."""
    from rdflib import RDF, SKOS, URIRef

    broader: defaultdict[str, set[str]] = defaultdict(set)
    for child, _, parent in graph.triples((None, SKOS.broader, None)):
        broader[str(child)].add(str(parent))
    for parent, _, child in graph.triples((None, SKOS.narrower, None)):
        broader[str(child)].add(str(parent))
    found = [concept for concept in graph.subjects(RDF.type, SKOS.Concept, unique=True) if isinstance(concept, URIRef)]
    notations = {str(concept): str(graph.value(concept, SKOS.notation) or "") for concept in found}
    return {
        str(concept): {
            "label": str(concept),
            "id": _last(str(concept)),
            "notation": notations[str(concept)],
            **_names((getattr(name, "language", None), str(name)) for name in graph.objects(concept, SKOS.prefLabel)),
            "parents": (above := sorted(broader[str(concept)])),
            "parent_ids": [_last(parent) for parent in above],
            "parent_notations": [notations[parent] for parent in above if notations.get(parent)],
        }
        for concept in found
    }


def _names(given: Iterable[tuple[str | None, str]]) -> dict[str, str]:
    """Make `name`, and `name_xx` for each language; of several in a language, the alphabetically first."""
    by_language: dict[str, str] = {}
    for language, name in sorted(((language or "").lower(), name) for language, name in given):
        by_language.setdefault(language, name)
    best = next((by_language[code] for code in ("en", "", *by_language) if code in by_language), "")
    return {"name": best} | {f"name_{code}": name for code, name in by_language.items() if code}


@cache
def _last(iri: str) -> str:
    return iri.rstrip("/#").replace("#", "/").rsplit("/", 1)[-1]
