"""The page for users of other tools: its code converts their files, and models come of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer
from transformers import AutoModelForSequenceClassification, BertConfig

import xmtc
from tiny import tiny
from tiny_runs import LABELS, documents
from xmtc.models.encoders.config import HuggingFaceConfig

PAGE = (Path(__file__).parents[2] / "docs/how-to/migrate.md").read_text(
    encoding="utf-8"
)
PECOS, SKLEARN = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
CONCEPTS = {
    label: f"http://example.org/{number}" for number, label in enumerate(LABELS)
}
ROWS = [{**row, "text": f'a "document" about {row["text"]}'} for row in documents(80)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("annif", "pecos", "moved"):
        (tmp_path / name).mkdir()
    return tmp_path


def converted() -> list[dict]:
    return [
        json.loads(line)
        for line in Path("moved/train.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.parametrize("form", ["lines", "folders"])
def test_an_annif_project_becomes_a_model_with_the_same_subjects(xmtc, form):
    if form == "lines":
        lines = [
            f"{row['text']}\t{' '.join(f'<{CONCEPTS[label]}>' for label in row['labels'])}\n"
            for row in ROWS
        ]
        Path("annif/train.tsv").write_text("".join(lines), encoding="utf-8")
    else:
        Path("annif/train").mkdir()
        for number, row in enumerate(ROWS):
            subjects = [f"<{CONCEPTS[label]}>\t{label}\n" for label in row["labels"]]
            text_file = Path(f"annif/train/doc{number}.txt")
            text_file.write_text(row["text"], encoding="utf-8")
            text_file.with_suffix(".tsv").write_text("".join(subjects))
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    turtle = [
        f'<{uri}> a skos:Concept ; skos:prefLabel "{label}"@en .\n'
        for label, uri in CONCEPTS.items()
    ]
    Path("annif/vocabulary.ttl").write_text(prefix + "".join(turtle), encoding="utf-8")
    for command in (("init", "annif", "--budget", "1s"), ("train", "annif.yaml")):
        outcome = xmtc(*command)
        assert outcome.code == 0, outcome.err
    (best, *_) = json.loads(
        xmtc("predict", "runs/annif/model", "--text", "fishery and fishing").out
    )["labels"]
    assert (best["label"], best["name"]) == (CONCEPTS["fish"], "fish")


def test_label_matrices_become_lists_of_labels():
    known = MultiLabelBinarizer(classes=LABELS)
    sparse.save_npz(
        "pecos/Y.trn.npz",
        sparse.csr_matrix(known.fit_transform([row["labels"] for row in ROWS])),
    )
    Path("pecos/X.trn.txt").write_text(
        "".join(f"{row['text']}\n" for row in ROWS), encoding="utf-8"
    )
    exec(PECOS, {})
    wanted = [
        {
            "text": row["text"],
            "labels": [str(LABELS.index(one)) for one in row["labels"]],
        }
        for row in ROWS
    ]
    assert [{**row, "labels": sorted(row["labels"])} for row in converted()] == [
        {**row, "labels": sorted(row["labels"])} for row in wanted
    ]


def test_what_scikit_learn_was_given_trains():
    binarizer = MultiLabelBinarizer()
    names = {
        "xmtc": xmtc,
        "binarizer": binarizer,
        "Y": binarizer.fit_transform([row["labels"] for row in ROWS]),
        "texts": [row["text"] for row in ROWS],
        "new_texts": ["fishery and fishing"],
    }
    exec(SKLEARN.replace("10m", "1s"), names)
    assert names["predictions"][0][0].label == "fish"


def test_a_fine_tuned_classifier_gives_its_encoder(folder):
    theirs = AutoModelForSequenceClassification.from_config(
        BertConfig(**tiny("bert"), vocab_size=100, num_labels=6)
    )
    theirs.save_pretrained(folder / "theirs")
    ours = HuggingFaceConfig(name=str(folder / "theirs")).build(100)
    mine, other = (
        ours.model.embeddings.word_embeddings.weight,
        theirs.bert.embeddings.word_embeddings.weight,
    )
    np.testing.assert_array_equal(mine.detach().numpy(), other.detach().numpy())
