"""SKOS vocabularies as label files: names, hierarchy, and what is wrong with a file."""

import logging
from pathlib import Path

import pytest
import rdflib

from xmtc.data.readers.table_config import LabelFileConfig
from xmtc.errors import DataError

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix e: <http://example.org/subject/> .
e:1 a skos:Concept ; skos:prefLabel "law"@en, "Recht"@de ; skos:notation "L" ; skos:narrower e:3 .
e:2 a skos:Concept ; skos:prefLabel "Fisch"@de ; skos:notation "F" ; skos:broader e:1 .
e:3 a skos:Concept ; skos:prefLabel "tax law"@en ; skos:broader e:1, e:9 .
"""
XML = """<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="http://example.org/subject/1">
    <skos:prefLabel xml:lang="en">law</skos:prefLabel>
  </skos:Concept>
  <skos:Concept rdf:about="http://example.org/subject/2">
    <skos:prefLabel xml:lang="de">Fisch</skos:prefLabel>
    <skos:broader rdf:resource="http://example.org/subject/1"/>
  </skos:Concept>
</rdf:RDF>
"""
PLACE = "http://example.org/subject/"


def _file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_concepts_are_labels_by_any_of_their_terms(tmp_path: Path) -> None:
    path = _file(tmp_path, "vocabulary.ttl", TURTLE)
    found = LabelFileConfig(path=path, parents="parents").read()
    assert found.names == {
        f"{PLACE}1": "law",
        f"{PLACE}2": "Fisch",
        f"{PLACE}3": "tax law",
    }
    assert found.parents == {
        f"{PLACE}2": (f"{PLACE}1",),
        f"{PLACE}3": (f"{PLACE}1", f"{PLACE}9"),
    }
    by_id = LabelFileConfig(path=path, label="id", parents="parent_ids").read()
    assert by_id.names == {"1": "law", "2": "Fisch", "3": "tax law"}
    assert by_id.parents == {"2": ("1",), "3": ("1", "9")}


def test_a_broader_concept_without_an_iri_is_none(tmp_path: Path) -> None:
    text = TURTLE + 'e:2 skos:broader [ skos:prefLabel "anonymous"@en ] .'
    found = LabelFileConfig(
        path=_file(tmp_path, "v.ttl", text), parents="parents"
    ).read()
    assert found.parents[f"{PLACE}2"] == (f"{PLACE}1",)


def test_other_names_are_kept(tmp_path: Path) -> None:
    text = 'e:4 skos:altLabel "idle"@en, "ungenutzt"@de ; xl:altLabel e:n4 .\ne:n4 xl:literalForm "x4" .\n'
    text = PUBLISHED + text
    found = LabelFileConfig(path=_file(tmp_path, "v.ttl", text), label="id").read()
    assert found.alternatives["4"] == ("idle", "ungenutzt", "x4")
    assert set(found.alternatives["1"]) == {"Recht"}
    rows = '{"label": "a", "name": "A", "alt_names": ["B", "A", " "], "name_de": "C", "name@fr": null, "named": "D"}\n'
    found = LabelFileConfig(path=_file(tmp_path, "l.jsonl", rows)).read()
    assert (found.names, found.alternatives) == ({"a": "A"}, {"a": ("B", "C")})
    assert found.translations == {"de": {"a": "C"}}
    table = "label,name,alt_names,name_de\na,A,\"['B', 'b c']\",[D]\nb,B,[],\n"  # as pandas writes lists
    found = LabelFileConfig(path=_file(tmp_path, "l.csv", table)).read()
    assert found.alternatives == {"a": ("B", "b c", "[D]")}


PUBLISHED = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix e: <http://example.org/subject/> .
e:1 a skos:Concept ; skos:prefLabel "lawful"@en-US, "Recht"@de ; skos:notation "L", "L1" .
e:2 a skos:Concept ; skos:prefLabel "Fisch"@de-AT, "poisson"@fr ; skos:notation "F" ; skos:broader e:1 .
e:3 a skos:Concept ; xl:prefLabel e:name3 ; skos:notation "X" .
e:name3 xl:literalForm "extended"@en .
e:4 a skos:Concept ; skos:prefLabel "unused"@en .
e:0 a skos:Concept ; skos:prefLabel "old law"@en ; skos:notation "L", "O" ; owl:deprecated true .
"""


def test_vocabularies_are_read_as_they_are_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _file(tmp_path, "vocabulary.ttl", PUBLISHED)
    with caplog.at_level(logging.INFO):
        found = LabelFileConfig(
            path=path, label="notation", parents="parent_notations"
        ).read()
    assert found.names == {
        "L": "lawful",
        "L1": "lawful",
        "F": "Fisch",
        "X": "extended",
        "O": "old law (deprecated)",
    }
    assert found.parents == {"F": ("L", "L1")}
    assert "concepts without notation, left out, 1" in caplog.text
    assert "labels of several concepts, of which the first counts, 1" in caplog.text
    german = LabelFileConfig(path=path, label="id", name="name_de").read()
    assert [german.names[label] for label in "1234"] == [
        "Recht",
        "Fisch",
        "extended",
        "unused",
    ]
    with pytest.raises(
        DataError,
        match=r"no column 'name_es'; did you mean 'name_en'\? there are: .*name_de",
    ):
        LabelFileConfig(path=path, label="id", name="name_es").read()


def test_notations_are_text_whatever_their_type(tmp_path: Path) -> None:
    integer = "<http://www.w3.org/2001/XMLSchema#integer>"
    text = f'{TURTLE}e:4 a skos:Concept ; skos:notation "001"^^{integer}, "007"^^e:code, 250.00 ; skos:broader e:1 .\n'
    found = LabelFileConfig(
        path=_file(tmp_path, "v.ttl", text), label="notation"
    ).read()
    assert {"001", "007", "250.00"} < found.names.keys()
    assert found.notations == {}
    by_id = LabelFileConfig(path=_file(tmp_path, "v.ttl", text), label="id").read()
    assert by_id.notations["4"] in {"001", "007", "250.00"}
    assert rdflib.NORMALIZE_LITERALS


def test_rdf_xml_says_the_same(tmp_path: Path) -> None:
    found = LabelFileConfig(
        path=_file(tmp_path, "vocabulary.rdf", XML), label="id", parents="parent_ids"
    ).read()
    assert (found.names, found.parents) == ({"1": "law", "2": "Fisch"}, {"2": ("1",)})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "v.ttl",
            TURTLE.replace("e:2 a skos:Concept", "e:2 a skos:Concept ]"),
            r"v\.ttl:5: not turtle",
        ),
        ("v.rdf", XML.replace("</rdf:RDF>", ""), r"v\.rdf:\d+: not xml"),
        ("v.ttl", "<http://a> <http://b> <http://c> .", r"no skos:Concept"),
        (
            "v.ttl",
            TURTLE.replace("notation", "note"),
            r"no concept has a notation; use id or label: name it in source\.labels",
        ),
    ],
    ids=["turtle", "xml", "no concept", "no notation"],
)
def test_wrong_vocabularies_are_refused(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        LabelFileConfig(path=_file(tmp_path, name, text), label="notation").read()
