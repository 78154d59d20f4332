"""A model of documents with two fields: trained, asked, explained, and scored as a table and over HTTP."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

import tiny_runs
import xmtc
from xmtc.artefact.info import read_info
from xmtc.data.corpus import Corpus
from xmtc.data.readers.columns import DocumentColumns
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.predict.arguments import as_text
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job

SCORERS = (
    "[{kind: linear, fields: {title: 1, body: 2}, penalties: [0.3]}, {kind: word_neighbours, neighbours: 5},"
    " {kind: word_neighbours, neighbours: 5, fields: [title]}, {kind: label_text, fields: [title]}]"
)


def fielded(row: dict) -> dict:
    """The row with its first three words as title."""
    words = row["text"].split()
    return {"id": row["id"], "head": " ".join(words[:3]), "body": " ".join(words[3:]), "labels": row["labels"]}


def write(folder: Path) -> Path:
    path = tiny_runs.write_config(folder)
    tree = yaml.safe_load(path.read_text())
    source = tree["data"]["source"]
    source["columns"]["text"] = {"title": "head", "body": "body"}
    for file in source["files"].values():
        rows = [fielded(json.loads(line)) for line in Path(file).read_text().splitlines()]
        tiny_runs.write_jsonl(Path(file), rows)
    tree["model"]["head"] = {"kind": "none"}
    del tree["plant"], tree["finetune"]["phases"]
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return train_run(tiny_runs.load(write(tmp_path_factory.mktemp("fields")), f"model.scorers={SCORERS}"))


@pytest.fixture(scope="module")
def model(run: Path) -> xmtc.Model:
    return xmtc.Model.from_pretrained(run / "model", device="cpu")


DOCUMENTS = [fielded(row) | {"title": fielded(row)["head"]} for row in tiny_runs.documents(6)]


def test_the_model_remembers_fields_and_their_columns(run: Path) -> None:
    info = read_info(run / "model")
    assert info.fields == ("title", "body")
    assert info.columns == DocumentColumns(id="id", text=("head", "body"))
    names = json.loads((run / "eval" / "dev" / "scorers.json").read_text())["names"]
    assert names == ["linear title body", "word_neighbours", "word_neighbours title", "label_text title"]


def test_words_are_counted_in_their_field(run: Path) -> None:
    corpus = Corpus.open(run.parent.parent / "corpus")
    words, vocabulary = corpus.split("train").words(), corpus.vocabulary()
    counts = words.counts_NC[[0]].toarray()[0].reshape(2, len(vocabulary))
    document = fielded(tiny_runs.documents(1)[0])
    for field, column in enumerate(("head", "body")):
        found = {vocabulary.terms[at]: int(n) for at, n in enumerate(counts[field]) if n}
        expected = document[column].lower().split()
        assert found == {word: expected.count(word) for word in expected if word in vocabulary.ids}


def test_documents_are_mappings_or_rows_of_a_table(model: xmtc.Model) -> None:
    expected = model.predict(DOCUMENTS, top_k=3)
    frame = pd.DataFrame(DOCUMENTS, index=list("abcdef"))
    assert model.predict(frame, top_k=3) == expected
    joined = [f"{one['title']}\n{one['body']}" for one in DOCUMENTS]
    assert model.predict(joined, top_k=3) != expected  # everything is body then
    last = [{"title": None, "body": text} for text in joined]
    assert model.predict(joined, top_k=3) == model.predict(last, top_k=3)


def test_a_missing_field_is_named(model: xmtc.Model) -> None:
    with pytest.raises(DataError, match="text 1 has no field 'title': give title, body"):
        model.predict([DOCUMENTS[0], {"body": "law"}])
    with pytest.raises(DataError, match="text 0 has no field 'body'"):
        model.predict(pd.DataFrame({"title": ["law"]}))


def test_evidence_names_fields_and_sums_to_the_logit(model: xmtc.Model) -> None:
    document = {"title": "lawery of the", "body": "lawing in that fishery"}
    (one,) = model.explain(document, "law")
    total = one.bias + one.special + sum(word.contribution for word in one.words) + sum(x for _, x in one.documents)
    assert total == pytest.approx(one.logit, abs=1e-4)
    assert [word.field for word in one.words] == ["title"] * 3 + ["body"] * 4
    text = as_text(document, ("title", "body"))
    assert all(text[word.start : word.end] == word.text for word in one.words)


def test_a_job_reads_the_columns_of_training(run: Path, model: xmtc.Model, tmp_path: Path) -> None:
    pd.DataFrame(DOCUMENTS).drop(columns="title").to_parquet(tmp_path / "in.parquet")
    columns = text_columns(None, None, model.info.columns)
    settings = Settings(top_k=3, bfloat16=False, columns=columns, evidence=True)
    job = make_job(run / "model", [str(tmp_path / "in.parquet")], tmp_path / "out", settings)
    score_local(job, device="cpu", workers=1)
    table = pd.concat(map(pd.read_parquet, sorted((tmp_path / "out").glob("part-*.parquet"))))
    for row, found in zip(table.itertuples(), model.predict(DOCUMENTS, top_k=3, evidence=True), strict=True):
        assert list(row.labels) == [one.label for one in found]
        fields = [[word["field"] for word in words] for words in row.evidence]
        assert fields == [[word.field for word in one.evidence] for one in found]


def test_a_field_that_documents_lack_is_refused(tmp_path: Path) -> None:
    config = tiny_runs.load(write(tmp_path), "model.scorers=[{kind: word_neighbours, fields: [titel]}]")
    with pytest.raises(ConfigError, match="word_neighbours: fields: the documents have no field 'titel'; they have"):
        train_run(config)
