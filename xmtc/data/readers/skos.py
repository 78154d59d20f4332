"""Vocabularies in SKOS (Turtle, RDF/XML, N-Triples), as they are published: concepts as the rows of a label file.

A row has the columns `label` (the concept's IRI), `id` (what follows its last / or #), `notation` (a list), `name` (in
English if there is one), `name_xx` for each language, `alt_names` (a list, of all languages), `language` of the chosen
name, whether it is `deprecated`, and the broader concepts and those that replace it (dct:isReplacedBy) in the terms of
each: `parents`, `parent_ids`, `parent_notations`; `replaced_by`, … It reads SKOS-XL.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax import SAXParseException

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import open_text
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rdflib import Graph, URIRef

SKOS_FORMATS = {
    ".ttl": "turtle",
    ".n3": "turtle",
    ".rdf": "xml",
    ".owl": "xml",
    ".xml": "xml",
    ".nt": "nt",
}
"""Names of the syntax, as rdflib calls them, by a file's ending."""
TERMS = {"label": "parents", "notation": "parent_notations", "id": "parent_ids"}
"""Columns that documents' labels may be, each with the column of broader concepts."""
REPLACEMENTS = {"notation": "replaced_by_notations", "id": "replaced_by_ids"}
"""The columns of concepts that replace one, unless it is `replaced_by`."""
_XL = "http://www.w3.org/2008/05/skos-xl#"


class SkosTable(TableFormat):
    """A `TableFormat`.

    Args:
        syntax: see `SKOS_FORMATS`.
        name: column that falls back to another language if a concept has no name in its language.

    Attributes:
        stated: version or date that the file states, once the first row is read.
    """

    stated = ""

    def __init__(self, syntax: str, name: str | None = None) -> None:
        self.syntax, self.name, self.identity = syntax, name or "name", f"skos {syntax}"

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Concepts in the order of their IRIs, deprecated ones last."""
        graph = _read(path, self.syntax)  # says which package is missing
        from rdflib import OWL, RDF, SKOS, URIRef

        self.stated = _stated(graph)
        found = sorted(
            one
            for one in graph.subjects(RDF.type, SKOS.Concept, unique=True)
            if isinstance(one, URIRef)
        )
        if not found:
            raise DataError(
                f"{path}: no skos:Concept in this file; give a SKOS vocabulary"
            )
        names = {concept: _names(graph, concept) for concept in found}
        old = {
            one
            for one in found
            if str(graph.value(one, OWL.deprecated)).lower() in ("true", "1")
        }
        known = {tag for tags in names.values() for tag in tags} | {"en"}
        for number, concept in enumerate(
            sorted(found, key=lambda one: (one in old, one)), start=1
        ):
            cells = _terms(graph, concept) | _named(names[concept], self.name, known)
            cells["deprecated"] = concept in old
            cells["alt_names"] = sorted(
                {str(name) for name in _given(graph, concept, "altLabel")}
            )
            if concept in old and self.name in cells:
                cells[self.name] = f"{cells[self.name] or cells['id']} (deprecated)"
            yield Row(cells, f"{path}: concept {concept}", number)

    @override
    def count(self, path: Path) -> None:
        """Nobody knows before the file is read."""


def _read(path: Path, syntax: str) -> "Graph":
    try:
        import rdflib
        from rdflib.exceptions import ParserError
        from rdflib.plugins.parsers.notation3 import BadSyntax
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{path}: SKOS needs the package rdflib: pip install 'xmtc[skos]'"
        ) from error
    normalises, rdflib.NORMALIZE_LITERALS = (
        rdflib.NORMALIZE_LITERALS,
        False,
    )  # a notation "001" is not 1
    try:
        with open_text(path) as text:
            return rdflib.Graph().parse(data=text.read(), format=syntax)
    except (BadSyntax, ParserError, SAXParseException) as error:
        line = f":{error.lines + 1}" if isinstance(error, BadSyntax) else ""
        line = (
            f":{error.getLineNumber()}"
            if isinstance(error, SAXParseException)
            else line
        )
        raise DataError(
            f"{path}{line}: not {syntax} as RDF has it; correct the file, or its ending"
        ) from error
    finally:
        rdflib.NORMALIZE_LITERALS = normalises


def _terms(graph: "Graph", concept: "URIRef") -> dict[str, Any]:
    """Return what identifies a concept, and the broader ones."""
    from rdflib import DCTERMS, SKOS, URIRef

    broader = {
        *graph.objects(concept, SKOS.broader),
        *graph.subjects(SKOS.narrower, concept),
    }
    above = sorted(
        str(one) for one in broader if isinstance(one, URIRef)
    )  # blank nodes have another name every time
    newer = sorted(
        str(one)
        for one in graph.objects(concept, DCTERMS.isReplacedBy)
        if isinstance(one, URIRef)
    )
    return {
        "label": str(concept),
        "id": _last(str(concept)),
        "notation": _notations(graph, concept),
        "parents": above,
        "parent_ids": [_last(parent) for parent in above],
        "parent_notations": [
            code for parent in above for code in _notations(graph, parent)
        ],
        "replaced_by": newer,
        "replaced_by_ids": [_last(one) for one in newer],
        "replaced_by_notations": [
            code for one in newer for code in _notations(graph, one)
        ],
    }


def _stated(graph: "Graph") -> str:
    """Return the version or date of the concept scheme or ontology; empty if it states none."""
    from rdflib import DCTERMS, OWL, RDF, SKOS

    schemes = [
        *graph.subjects(RDF.type, SKOS.ConceptScheme),
        *graph.subjects(RDF.type, OWL.Ontology),
    ]
    of = (OWL.versionInfo, DCTERMS.modified, DCTERMS.issued)
    return next(
        (
            str(date)
            for said in of
            for one in sorted(schemes, key=str)
            if (date := graph.value(one, said))
        ),
        "",
    )


def _notations(graph: "Graph", concept: str) -> list[str]:
    from rdflib import SKOS, URIRef

    return sorted(map(str, graph.objects(URIRef(concept), SKOS.notation)))


def _names(graph: "Graph", concept: "URIRef") -> dict[str, str]:
    """Return a concept's names by language; of several in a language, the alphabetically first."""
    from rdflib import RDFS

    given = _given(graph, concept, "prefLabel") or [*graph.objects(concept, RDFS.label)]
    return dict(
        sorted(
            ((getattr(name, "language", None) or "").lower(), str(name))
            for name in given
        )[::-1]
    )


def _given(graph: "Graph", concept: "URIRef", kind: str) -> list[Any]:
    """Return a concept's names of a kind, in SKOS and SKOS-XL."""
    from rdflib import SKOS, URIRef

    given = [*graph.objects(concept, SKOS[kind])]
    for label in graph.objects(concept, URIRef(_XL + kind)):
        given += graph.objects(label, URIRef(_XL + "literalForm"))
    return given


def _named(names: dict[str, str], column: str, known: set[str]) -> dict[str, str]:
    """Make the columns with names; the wanted one is filled if there is any name, and its language is in the file."""
    cells = {f"name_{tag}": name for tag, name in names.items() if tag}
    for wanted in {"name", column}:
        language = wanted.removeprefix("name").lstrip("_").lower() or "en"
        tag = min(names, key=lambda tag: _distance(tag, language), default="")
        if any(_base(one) == _base(language) for one in known):
            cells |= {wanted: names.get(tag, "")} | (
                {"language": tag or "none"} if wanted == column and names else {}
            )
    return cells


def _distance(tag: str, wanted: str) -> tuple[Any, ...]:
    """Order languages: the wanted one, its base, its variants; the same of English; none; the others."""
    near = (language != tag for language in (wanted, _base(wanted)))
    return (
        *near,
        _base(tag) != _base(wanted),
        tag != "en",
        _base(tag) != "en",
        tag != "",
        tag,
    )


def _base(tag: str) -> str:
    return tag.split("-")[0]


@cache
def _last(iri: str) -> str:
    return iri.rstrip("/#").replace("#", "/").rsplit("/", 1)[-1]
