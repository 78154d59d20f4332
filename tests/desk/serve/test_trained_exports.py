"""From an export of another tool to a server: `xmtc train`, which writes the configuration, and a question."""

import random
from pathlib import Path

import pytest
from served import running

import xmtc
from format_cases import exports, folders
from format_cases.made import Case, Document, Write
from formats import run_xmtc

SUBJECTS = ["politics", "sport", "economy", "health", "music", "law"]
WORDS = ["the", "of", "and", "was", "about", "with", "report", "from", "this", "which"]
TOOLS: dict[str, Write] = {
    "Label Studio": exports.label_studio,
    "doccano": exports.doccano_csv,
    "Annif": folders.annif_folder,
}


def a_hundred(draw: random.Random) -> Case:
    """Documents whose labels are among their words, so that a model of a few seconds can learn them."""
    documents = []
    for number in range(100):
        labels = tuple(draw.sample(SUBJECTS, draw.randint(1, 2)))
        words = [*draw.choices(WORDS, k=12), *labels, *labels]
        draw.shuffle(words)
        documents.append(Document(f"{' '.join(words)} {number}", labels))
    expected = {document.text: frozenset(document.labels) for document in documents}
    return Case(documents, SUBJECTS, draw, expected)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_served_model_knows_the_labels_of_the_export(
    tmp_path: Path, tool: str
) -> None:
    case = a_hundred(random.Random(tool))
    files = tmp_path / "files"
    files.mkdir()
    path = TOOLS[tool](case, files)
    said = run_xmtc(tmp_path, ["train", str(path), "--budget", "1s"])
    assert (said.status, said.fault) == (0, None), said.output
    (model,) = tmp_path.glob("runs/*/model")
    with running(xmtc.Model.from_pretrained(model)) as client:
        question = "the report was about law and law of this sport, sport"
        answer = client.post("/predict", {"texts": [question], "top_k": 2})
    assert answer.status_code == 200, answer.text
    (predicted,) = answer.json()["predictions"]
    assert {label["label"] for label in predicted} == {"law", "sport"}
