"""A new version of a vocabulary: what it changes for a model, and what can be applied without training."""

import gzip
import json
import logging
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_relabel import run

from named_model import NAMES, TEXTS, export
from xmtc.artefact.contract import LABELS
from xmtc.artefact.export import load_model, open_model, write_model
from xmtc.artefact.info import vocabulary_warning
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import LabelInfo
from xmtc.data.readers.table_config import LabelFileConfig
from xmtc.errors import DataError
from xmtc.labels.vocabulary import VocabularyChange, apply_changes, changes_of
from xmtc.predict.predictor import Model
from xmtc.predict.smoke import check_answers

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix e: <http://example.org/> .
e:scheme a skos:ConceptScheme ; dct:modified "2026-11-01" .
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Path:
    """The model's labels, of which each of the first has changed in another way."""
    concepts = {
        f"L{i:02d}": f'a skos:Concept ; skos:prefLabel "{name}"@en ; skos:broader e:top'
        for i, name in enumerate(NAMES)
    }
    old = 'a skos:Concept ; skos:prefLabel "old"@en ; owl:deprecated true'
    del concepts["L00"]
    concepts |= {
        "L01": old,
        "L02": f"{old} ; dct:isReplacedBy e:L03",
        "L04": f"{old} ; dct:isReplacedBy e:new",
        "L05": f"{old} ; dct:isReplacedBy e:both",
        "L06": f"{old} ; dct:isReplacedBy e:both",
        "L07": f"{old} ; dct:isReplacedBy e:L08, e:part",
        "L09": f"{old} ; dct:isReplacedBy e:L01",
        "L10": 'a skos:Concept ; skos:prefLabel "fishes"@en ; skos:broader e:L11',
        "new": 'a skos:Concept ; skos:prefLabel "a new one"@en ; skos:broader e:top',
        "both": 'a skos:Concept ; skos:prefLabel "both"@en ; skos:broader e:L11',
        "part": 'a skos:Concept ; skos:prefLabel "a part"@en ; skos:broader e:top',
    }
    path = tmp_path_factory.mktemp("skos") / "vocabulary.ttl"
    path.write_text(
        TURTLE + "".join(f"e:{label} {text} .\n" for label, text in concepts.items()),
        encoding="utf-8",
    )
    return path


def test_every_kind_of_change_is_found_and_says_what_it_needs(
    model, vocabulary, tmp_path, monkeypatch, capsys
):
    columns = ("--label", "id", "--parents", "parent_ids")
    assert (
        run(
            monkeypatch,
            "diff",
            model,
            vocabulary,
            *columns,
            "-o",
            tmp_path / "changes.jsonl",
        )
        == 0
    )
    said = capsys.readouterr().err
    assert "split: 1 label, such as 'L07': training: nobody knows" in said
    assert (
        "merged: 3 labels, such as 'L02': apply merges them into the label that replaces them"
        in said
    )
    rows = [
        json.loads(line)
        for line in (tmp_path / "changes.jsonl").read_text().splitlines()
    ]
    assert (rows[0]["kind"], rows[0]["name"].split()[0]) == ("version", "2026-11-01")
    assert [tuple(row.values())[:4] for row in rows[1:]] == [
        ("gone", "L00", [], ""),
        ("deprecated", "L01", [], ""),
        ("merged", "L02", ["L03"], NAMES[3]),
        ("replaced", "L04", ["new"], "a new one"),
        ("merged", "L05", ["both"], "both"),
        ("merged", "L06", ["both"], "both"),
        ("split", "L07", ["L08", "part"], ""),
        ("deprecated", "L09", [], ""),
        ("renamed", "L10", [], "fishes"),
        ("moved", "L10", ["L11"], ""),
        ("new", "part", [], "a part"),
    ]


def test_what_needs_no_training_is_applied(
    model, vocabulary, tmp_path, monkeypatch, capsys
):
    columns = ("--label", "id", "--parents", "parent_ids")
    assert (
        run(
            monkeypatch,
            "diff",
            model,
            vocabulary,
            *columns,
            "-o",
            tmp_path / "changes.jsonl",
        )
        == 0
    )
    for given in ((vocabulary, *columns), (tmp_path / "changes.jsonl",)):
        assert run(monkeypatch, "apply", model, *given, "-o", tmp_path / "new") == 0
        assert "2 changes need training" in capsys.readouterr().err
        parts = load_model(tmp_path / "new")
        table = parts.labels
        assert {"new", "both", "L03", "L07"} <= set(table.labels)
        assert not {"L00", "L01", "L02", "L04", "L05", "L06", "L09"} & set(table.labels)
        assert [table.names[table.index(one)] for one in ("new", "both", "L10")] == [
            "a new one",
            "both",
            "fishes",
        ]
        assert table.parents is not None
        assert [table.parents[table.index(one)] for one in ("L10", "both")] == [
            ("L11",)
        ] * 2
        assert parts.info.vocabulary.startswith("2026-11-01 sha256:")
        check_answers(
            Model.from_pretrained(tmp_path / "new", device="cpu"), tmp_path / "new"
        )
    before, after = (
        Model.from_pretrained(one, device="cpu").predict(TEXTS, 30)
        for one in (model, tmp_path / "new")
    )
    for old, new in zip(before, after, strict=True):
        scores = {one.label: one.score for one in old}
        shared = [one for one in new if one.label in scores and one.label != "L03"]
        assert len(shared) >= 20
        np.testing.assert_allclose(
            [one.score for one in shared],
            [scores[one.label] for one in shared],
            rtol=1e-5,
        )
        assert next(one.score for one in new if one.label == "new") == pytest.approx(
            scores["L04"], rel=1e-5
        )
    assert run(monkeypatch, "diff", tmp_path / "new", vocabulary, *columns) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        str(vocabulary),
        "new",
        "split",
    ]


def test_names_in_other_languages_are_applied_too(
    model, vocabulary, tmp_path, monkeypatch, capsys
):
    parts = open_model(model, tmp_path / "old")
    table = replace(
        parts.labels,
        translations={"de": ["alt"] * len(NAMES), "fr": ["vieux"] * len(NAMES)},
    )
    write_model(
        model,
        tmp_path / "old",
        replace(parts, labels=table),
        "labels named.",
        parts.index,
    )
    german = {"L10": "Fische", "L11": "alt", "new": "ein neues"}
    (tmp_path / "new.ttl").write_text(
        vocabulary.read_text()
        + "".join(
            f'e:{one} skos:prefLabel "{name}"@de .\n' for one, name in german.items()
        )
    )
    columns = ("--label", "id", "--parents", "parent_ids")
    assert (
        run(
            monkeypatch,
            "apply",
            tmp_path / "old",
            tmp_path / "new.ttl",
            *columns,
            "-o",
            tmp_path / "new",
        )
        == 0
    )
    found = LabelTable.load(tmp_path / "new" / LABELS)
    shown = {
        label: found.names_in("de")[found.index(label)]
        for label in (*german, "L03", "both", "L07")
    }
    assert shown == german | {
        "L03": "",
        "both": "",
        "L07": "alt",
    }  # nothing is known of the label that stays
    assert set(found.names_in("fr")) == {"vieux"}  # the vocabulary has no French
    capsys.readouterr()
    assert (
        run(monkeypatch, "diff", tmp_path / "new", tmp_path / "new.ttl", *columns) == 0
    )
    assert "renamed" not in capsys.readouterr().err


def test_a_label_may_be_replaced_by_one_that_is_only_a_parent(model, tmp_path):
    change = VocabularyChange("replaced", "L04", ("top",), "the top", parents=())
    apply_changes(model, [change], tmp_path / "new")
    table = LabelTable.load(tmp_path / "new" / LABELS)
    assert table.parents is not None
    assert (table.names[table.index("top")], table.parents[table.index("top")]) == (
        "the top",
        (),
    )
    assert len(table.branch("top")) == len(table) == len(NAMES)


def test_replacements_are_followed_to_their_end():
    table = LabelTable(list("abc"), list("abc"), np.array([1, 2, 3]))
    info = LabelInfo(
        dict.fromkeys("abcd", "n"),
        deprecated={"a": ("b",), "b": ("d", "a"), "c": ("c",)},
    )
    found = {(one.kind, one.label, one.to) for one in changes_of(table, info)[1:]}
    assert found == {
        ("merged", "a", ("d",)),
        ("merged", "b", ("d",)),
        ("deprecated", "c", ()),
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"kind": "gone", "label": "none"}', "no label 'none'"),
        (
            '{"kind": "gone", "label": 3}',
            "changes.jsonl:1: not a change: label: Input should be a valid string",
        ),
        (
            '{"kind": "merged", "label": "L00"}',
            "changes.jsonl:1: not a change: .*`to` needs the one label",
        ),
        (
            '{"kind": "replaced", "label": "L00", "to": ["A", "B"]}',
            "changes.jsonl:1: not a change: .*`to` needs the one",
        ),
        (
            '{"kind": "replaced", "label": "L00", "to": ["A"]}\n' * 2,
            "changes.jsonl: replaced 'L00' is there twice",
        ),
        ('{"kind": "kept"}', "changes.jsonl:1: not a change: kind: Input should be"),
        (
            '{"kind": "gone", "label": "L00"}\n{"lab',
            "changes.jsonl:2: not a change: Invalid JSON",
        ),
    ],
)
def test_a_bad_change_is_refused_in_one_line(
    model, tmp_path, monkeypatch, capsys, line, words
):
    (tmp_path / "changes.jsonl").write_text(line + "\n")
    assert (
        run(
            monkeypatch,
            "apply",
            model,
            tmp_path / "changes.jsonl",
            "-o",
            tmp_path / "new",
        )
        != 0
    )
    said = capsys.readouterr().err
    assert re.search(words, said)
    assert said.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["changes.jsonl", "changes.json", "changes.jsonl.gz"])
def test_changes_are_not_taken_for_a_vocabulary_without_all_other_labels(
    model, tmp_path, monkeypatch, name
):
    content = b'\n{"kind": "renamed", "label": "L10", "name": "fishes"}\n'  # the line above was deleted by hand
    (tmp_path / name).write_bytes(
        gzip.compress(content) if name.endswith("gz") else content
    )
    assert (
        run(monkeypatch, "apply", model, tmp_path / name, "-o", tmp_path / "new") == 0
    )
    table = LabelTable.load(tmp_path / "new" / LABELS)
    assert (len(table), table.names[table.index("L10")]) == (len(NAMES), "fishes")


def test_a_vocabulary_of_other_labels_is_refused(
    model, vocabulary, monkeypatch, capsys
):
    assert run(monkeypatch, "diff", model, vocabulary) != 0
    assert (
        "none of the model's labels; say which column has them with --label"
        in capsys.readouterr().err
    )


def test_a_table_states_replacements_too(tmp_path):
    (tmp_path / "labels.jsonl").write_text(
        '{"label": "a", "name": "A", "deprecated": true}\n{"label": "b", "replaced_by": "c"}\n{"label": "c"}\n'
    )
    found = LabelFileConfig(path=str(tmp_path / "labels.jsonl"), name=None).read()
    assert found.deprecated == {"a": (), "b": ("c",)}
    rows = (
        "a,A,1.0\nb,B,\nc,C,0.0\nd,D,TRUE\n"  # as pandas and R write truths with gaps
    )
    (tmp_path / "truths.csv").write_text("label,name,deprecated\n" + rows)
    assert LabelFileConfig(path=str(tmp_path / "truths.csv")).read().deprecated == {
        "a": (),
        "d": (),
    }
    table = pa.table(
        {"label": ["a", "b"], "name": ["A", "B"], "deprecated": [1.0, None]}
    )
    pq.write_table(table, tmp_path / "truths.parquet")
    assert LabelFileConfig(path=str(tmp_path / "truths.parquet")).read().deprecated == {
        "a": ()
    }
    assert found.version.startswith("sha256:")
    assert asdict(VocabularyChange("new", "a")) == {
        "kind": "new",
        "label": "a",
        "to": (),
        "name": "",
        "names": {},
        "parents": None,
    }


def test_versions_are_compared_only_where_both_are_known(caplog):
    with caplog.at_level(logging.WARNING):
        assert (
            vocabulary_warning("", "b", "x")
            == vocabulary_warning("a", "", "x")
            == vocabulary_warning("a", "a", "x")
            == ""
        )
        with pytest.raises(DataError):
            changes_of(
                LabelTable(["a"], ["a"], np.ones(1, np.int64)), LabelInfo({"b": "b"})
            )
    assert "vocabulary is a, that of x b" in vocabulary_warning("a", "b", "x")


def test_the_folder_of_a_run_stands_for_its_model(
    model, vocabulary, monkeypatch, capsys
):
    assert (
        run(
            monkeypatch,
            "diff",
            model.parent,
            vocabulary,
            "--label",
            "id",
            "--parents",
            "parent_ids",
        )
        == 0
    )
    assert "split: 1 label" in capsys.readouterr().err
