"""A model of documents with two fields and a category: trained, asked, explained, and scored as a table."""

import json
import logging
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import tiny_runs
import xmtc
from xmtc.artefact.info import read_info
from xmtc.data.corpus import Corpus
from xmtc.data.fields import FieldText
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.data.readers.columns import DocumentColumns
from xmtc.data.tokenizer import load_pretrained
from xmtc.desk.annotate.worklist import read_documents
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.predict.arguments import as_text
from xmtc.predict.evidence import merge_words
from xmtc.predict.tokenised import tokenised
from xmtc.report.evidence import explain_text
from xmtc.run.directory import RunPaths
from xmtc.score.inputs import read_inputs, text_columns, texts_of
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job

SCORERS = (
    "[{kind: linear, fields: {title: 1, body: 2, kind: 1}, penalty: 0.3}, {kind: word_neighbours, neighbours: 5},"
    " {kind: word_neighbours, neighbours: 5, fields: [title]}, {kind: label_text, fields: [title]}]"
)


def fielded(row: dict) -> dict:
    """The row with its first three words as title, and the first letters of its labels as values of a category."""
    words = row["text"].split()
    kind = [label[0] for label in row["labels"]]
    return {
        "id": row["id"],
        "head": " ".join(words[:3]),
        "body": " ".join(words[3:]),
        "kind": kind,
    } | {"labels": row["labels"]}


def write(folder: Path) -> Path:
    path = tiny_runs.write_config(folder)
    tree = yaml.safe_load(path.read_text())
    source = tree["data"]["source"]
    source["columns"] |= {
        "text": {"title": "head", "body": "body"},
        "categories": ["kind"],
    }
    for file in source["files"].values():
        rows = [
            fielded(json.loads(line)) for line in Path(file).read_text().splitlines()
        ]
        tiny_runs.write_jsonl(Path(file), rows)
    tree["model"]["head"] = {"kind": "none"}
    del tree["plant"], tree["finetune"]["phases"]
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return train_run(
        tiny_runs.load(
            write(tmp_path_factory.mktemp("fields")), f"model.scorers={SCORERS}"
        )
    )


@pytest.fixture(scope="module")
def model(run: Path) -> xmtc.Model:
    return xmtc.Model.from_pretrained(run / "model", device="cpu")


DOCUMENTS = [
    fielded(row) | {"title": fielded(row)["head"]} for row in tiny_runs.documents(6)
]


def test_the_model_remembers_fields_and_their_columns(run: Path) -> None:
    info = read_info(run / "model")
    assert (info.fields, info.categories) == (("title", "body"), ("kind",))
    assert info.columns == DocumentColumns(
        id="id", text=("head", "body"), categories=("kind",)
    )
    names = json.loads((run / "eval" / "dev" / "scorers.json").read_text())["names"]
    assert names == [
        "linear title body kind",
        "word_neighbours",
        "word_neighbours title",
        "label_text title",
    ]


def test_words_are_counted_in_their_field(run: Path) -> None:
    corpus = Corpus.open(run.parent.parent / "corpus")
    words, vocabulary = corpus.split("train").words(), corpus.vocabulary()
    counts = words.counts_NC[[0]].toarray()[0].reshape(3, len(vocabulary))
    document = fielded(tiny_runs.documents(1)[0])
    for field, column in enumerate(("head", "body")):
        found = {
            vocabulary.terms[at]: int(n) for at, n in enumerate(counts[field]) if n
        }
        expected = document[column].lower().split()
        assert found == {
            word: expected.count(word) for word in expected if word in vocabulary.ids
        }
    values = [vocabulary.terms[at] for at, n in enumerate(counts[2]) if n]
    assert sorted(values) == sorted({f"kind={letter}" for letter in document["kind"]})


def test_categories_count_if_they_are_known(model: xmtc.Model) -> None:
    document = {"title": "the", "body": "of in"}
    letters = sorted(
        {letter for one in tiny_runs.documents(60) for letter in fielded(one)["kind"]}
    )
    given = [
        document | {"kind": kind}
        for kind in (*letters[:2], letters[0].upper(), None, ["unknown", 7, True])
    ]
    known, other, *unknown = model.predict([*given, document], top_k=3)
    assert known != other
    assert unknown == [unknown[0]] * 4
    assert known != unknown[0]


def test_values_are_read_as_labels_are() -> None:
    document = {
        "body": "x",
        "kind": [1.0, None, True, " a b", "a b"],
        "ward": "['3', '4']",
        "lang": float("nan"),
    }
    text = as_text(document, ("body",), categories=("kind", "ward", "lang", "more"))
    assert isinstance(text, FieldText)
    assert (text, text.categories) == (
        "x",
        ("kind=1", "kind=True", "kind=a b", "ward=3", "ward=4"),
    )
    assert pickle.loads(pickle.dumps(text)).categories == text.categories
    with pytest.raises(DataError, match="the text: 'kind'"):
        as_text(
            {"body": "x", "kind": {"p": "q", "r": "s"}}, ("body",), categories=("kind",)
        )


def test_an_encoder_reads_the_values_of_categories_before_the_text() -> None:
    text = as_text(
        {"body": "law of the sea", "kind": ["Order", "a b"]},
        ("body",),
        categories=("kind",),
    )
    tokenizer = load_pretrained(DEFAULT_BACKBONE)
    found = tokenised([text, str(text)], tokenizer, 6)
    assert [tokenizer.decode(ids) for ids in found.ids_N] == [
        "order a b law of the",
        "law of the sea",
    ]
    words, outside = merge_words(
        text, found.one(0).offsets, np.arange(1, 7, dtype=np.float32)
    )
    assert ([(word.text, word.contribution) for word in words], outside) == (
        [("law", 4), ("of", 5), ("the", 6)],
        6,
    )


def test_documents_are_mappings_or_rows_of_a_table(model: xmtc.Model) -> None:
    expected = model.predict(DOCUMENTS, top_k=3)
    frame = pd.DataFrame(DOCUMENTS, index=list("abcdef"))
    assert model.predict(frame, top_k=3) == expected
    joined = [f"{one['title']}\n{one['body']}" for one in DOCUMENTS]
    assert model.predict(joined, top_k=3) != expected  # everything is body then
    last = [{"title": None, "body": text} for text in joined]
    assert model.predict(joined, top_k=3) == model.predict(last, top_k=3)


def test_a_missing_field_is_named(model: xmtc.Model) -> None:
    with pytest.raises(
        DataError, match="text 1 has no field 'title': give title, body"
    ):
        model.predict([DOCUMENTS[0], {"body": "law"}])
    with pytest.raises(DataError, match="no column 'body'"):
        model.predict(pd.DataFrame({"title": ["law"]}))


def test_evidence_names_fields_and_sums_to_the_logit(model: xmtc.Model) -> None:
    document = {
        "title": "lawery of the",
        "body": "lawing in that fishery",
        "kind": ["l", "unknown"],
    }
    (one,) = model.explain(document, "law")
    total = (
        one.bias
        + one.other
        + sum(word.contribution for word in one.words)
        + sum(x for _, x in one.documents)
    )
    assert total == pytest.approx(one.logit, abs=1e-4)
    assert [word.field for word in one.words] == ["title"] * 3 + ["body"] * 4 + ["kind"]
    text = as_text(document, ("title", "body"))
    *words, value = one.words
    assert all(text[word.start : word.end] == word.text for word in words)
    assert (value.text, value.start, value.end) == ("kind=l", len(text), len(text))
    assert value.contribution > 0
    (section,) = explain_text(
        model, as_text(document, ("title", "body"), categories=("kind",)), "law", 0
    )
    assert "kind=l" in [bar.title for bar in section.bars]
    assert "".join(piece.text for piece in section.contributions) == text


def test_a_job_reads_the_columns_of_training(
    run: Path, model: xmtc.Model, tmp_path: Path
) -> None:
    pd.DataFrame(DOCUMENTS).drop(columns="title").to_parquet(tmp_path / "in.parquet")
    columns = text_columns(None, None, model.info.columns)
    settings = Settings(top_k=3, bfloat16=False, columns=columns, evidence=True)
    job = make_job(
        run / "model", [str(tmp_path / "in.parquet")], tmp_path / "out", settings
    )
    score_local(job, device="cpu", workers=1)
    table = pd.concat(
        map(pd.read_parquet, sorted((tmp_path / "out").glob("part-*.parquet")))
    )
    for row, found in zip(
        table.itertuples(),
        model.predict(DOCUMENTS, top_k=3, evidence=True),
        strict=True,
    ):
        assert list(row.labels) == [one.label for one in found]
        fields = [[word["field"] for word in words] for words in row.evidence]
        assert fields == [[word.field for word in one.evidence] for one in found]


def test_a_sample_to_annotate_has_fields_and_categories(
    run: Path, tmp_path: Path, xmtc
) -> None:
    source = tiny_runs.write_jsonl(
        tmp_path / "in.jsonl",
        [fielded(row) for row in tiny_runs.documents(60, first=160)],
    )
    xmtc("score", run / "model", source, "-o", tmp_path / "out", "--threshold", "tuned")
    sample = tmp_path / "sample.jsonl"
    done = xmtc(
        *(
            "annotations",
            "sample",
            tmp_path / "out",
            "--model",
            run / "model",
            "--size",
            8,
        ),
        *("--input", source, "-o", sample),
    )
    assert done.code == 0
    given = {row["id"]: row for row in map(json.loads, source.read_text().splitlines())}
    columns = read_info(run / "model").columns
    for doc_id, text in read_documents(sample, columns).items():
        assert columns.cells(text) == {
            "head": given[doc_id]["head"],
            "body": given[doc_id]["body"],
            "kind": list(dict.fromkeys(given[doc_id]["kind"])),
        }


def test_other_values_of_a_category_are_drift(run: Path, tmp_path: Path, xmtc) -> None:
    model, now = run / "model", tmp_path / "now.jsonl"
    rows = [fielded(row) for row in tiny_runs.documents(60, first=160)]

    def found(kinds: list[str] | None) -> dict:
        given = [
            {key: value for key, value in row.items() if key != "kind"} for row in rows
        ]
        given = [row | ({} if kinds is None else {"kind": kinds}) for row in given]
        xmtc(
            "drift",
            model,
            tiny_runs.write_jsonl(now, given),
            "--json",
            tmp_path / "drift.json",
        )
        return json.loads((tmp_path / "drift.json").read_text())["changes"]

    one, none = found(["l"]), found(None)
    assert (one["category kind"]["now"], one["category kind"]["drift"]) == ("l", True)
    assert (none["category kind"]["now"], none["category kind"]["distance"]) == (
        "unknown",
        1,
    )
    xmtc(
        "drift",
        model,
        tiny_runs.write_jsonl(now, rows),
        "--json",
        tmp_path / "drift.json",
    )
    same = json.loads((tmp_path / "drift.json").read_text())["changes"]["category kind"]
    assert not same["drift"]


def test_a_table_may_lack_a_category(
    run: Path, model: xmtc.Model, tmp_path: Path, caplog
) -> None:
    pd.DataFrame(DOCUMENTS).drop(columns=["title", "kind"]).to_parquet(
        tmp_path / "in.parquet"
    )
    columns = text_columns(None, None, model.info.columns)
    with caplog.at_level(logging.WARNING):
        rows = read_inputs([str(tmp_path / "in.parquet")], columns, model.info.columns)
        found = [text for _, text in texts_of(rows)]
    assert (
        "in.parquet: no column 'kind': its documents are read without this category"
        in caplog.text
    )
    without = [{**one, "kind": None} for one in DOCUMENTS]
    assert model.predict(found, top_k=3) == model.predict(without, top_k=3)


def test_an_identifier_is_no_category(tmp_path: Path) -> None:
    changes = (
        "data.source.columns.categories=[id]",
        "data.source.columns.id=null",
        "model.scorers=[{kind: linear}]",
    )
    config = tiny_runs.load(write(tmp_path), *changes)
    with pytest.raises(
        DataError,
        match="no two training documents have the same value of 'id': it is an identifier",
    ):
        train_run(config)


def test_a_field_that_documents_lack_is_refused(tmp_path: Path) -> None:
    config = tiny_runs.load(
        write(tmp_path), "model.scorers=[{kind: word_neighbours, fields: [titel]}]"
    )
    with pytest.raises(
        ConfigError,
        match="word_neighbours: fields: the documents have no field 'titel'; they have",
    ):
        train_run(config)
    assert not RunPaths.of(config).corpus.exists()


@pytest.mark.parametrize("seed", range(8))
def test_a_document_scores_the_same_in_any_batch_and_order(
    model: xmtc.Model, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    others = [
        fielded(row) | {"title": fielded(row)["head"]}
        for row in tiny_runs.documents(20, first=40)
    ]
    alone = [model.predict([document], top_k=6)[0] for document in DOCUMENTS]
    numbers = rng.permutation(len(DOCUMENTS) + int(rng.integers(len(others))))
    batch = [
        DOCUMENTS[at] if at < len(DOCUMENTS) else others[at - len(DOCUMENTS)]
        for at in numbers
    ]
    together = model.predict(batch, top_k=6)
    for at, predictions in zip(numbers, together, strict=True):
        if at < len(DOCUMENTS):
            assert [one.label for one in predictions] == [
                one.label for one in alone[at]
            ]
            np.testing.assert_allclose(
                [one.score for one in predictions],
                [one.score for one in alone[at]],
                atol=1e-5,
            )
