"""Documents that a model brings to prove that it answers as it did when it was written: names of its own labels.

`smoke.json` has a list of `{"text": …, "labels": {label: probability}}`. People may add documents.
"""

import contextlib
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from xmtc.artefact.info import read_model_json
from xmtc.artefact.output import SMOKE
from xmtc.errors import CheckpointError
from xmtc.files import reading, write_json
from xmtc.predict.predictor import Model
from xmtc.predict.text_scorer import NoTokensError

TOLERANCE = 0.05
"""Difference of probabilities that another precision or processor may make."""
_DOCUMENTS = 4
_LABELS = 3
_CHECKED = 50
"""Labels of a document, beside its own, among which its own are looked for."""


class Document(TypedDict):
    """A document with probabilities of some labels."""

    text: str
    labels: dict[str, float]


def write_answers(directory: Path) -> None:
    """Write the names of an exported model's most frequent labels, with its answers to them."""
    model = Model.from_pretrained(directory, device="cpu", bfloat16=False)
    documents = []
    for label_id in np.argsort(-model.labels.train_counts, kind="stable")[
        :_DOCUMENTS
    ].tolist():
        text = model.labels.names[label_id]
        with contextlib.suppress(NoTokensError):
            (best,) = model.predict([text], top_k=_LABELS)
            scores = {
                prediction.label: round(prediction.score, 4) for prediction in best
            }
            documents.append(Document(text=text, labels=scores))
    write_json(directory / SMOKE, documents, indent=1)


def check_answers(model: Model, directory: Path) -> None:
    """Compare a model's answers with those that it brings, if it brings some.

    Raises:
        CheckpointError: the file is wrong, or an answer differs.
        XmtcError: the model does not answer.
    """
    path = directory / SMOKE
    if not path.exists():
        return
    with reading(path, CheckpointError, "export the model again"):
        documents = TypeAdapter(list[Document]).validate_python(read_model_json(path))
    for number, document in enumerate(documents):
        (best,) = model.predict(
            [document["text"]], top_k=_CHECKED + len(document["labels"])
        )
        scores = {prediction.label: prediction.score for prediction in best}
        for label, expected in document["labels"].items():
            score = scores.get(label, 0.0)
            if not abs(score - expected) <= TOLERANCE:
                raise CheckpointError(
                    f"{path}: document {number}: label {label!r} has probability {score:.3f} and had "
                    f"{expected:.3f} when the model was written; export the model again"
                )
