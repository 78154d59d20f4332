"""A calibrated model: predicted, scored and explained with the same, calibrated, probabilities."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import xmtc
from score_jobs import COLUMNS, read_output, score, write_rows
from trial_model import LABELS, TEXTS, export
from xmtc.artefact.export import export_model, load_model
from xmtc.fusion.decision import HALF
from xmtc.models.calibration import Calibration
from xmtc.score.job import Settings


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return export(tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture(scope="module")
def calibration():
    random = torch.Generator().manual_seed(0)
    return Calibration(
        torch.rand(LABELS, generator=random) + 0.5,
        torch.randn(LABELS, generator=random),
    )


@pytest.fixture(scope="module")
def directory(plain, calibration, tmp_path_factory):
    parts = load_model(plain)
    parts.classifier.calibration = calibration
    target = tmp_path_factory.mktemp("run") / "model"
    trained = dict(parts.classifier.named_parameters())
    return export_model(target, replace(parts, decision=HALF), trained)


@pytest.fixture(scope="module")
def model(directory):
    return xmtc.Model.from_pretrained(directory, device="cpu")


def log_odds(score):
    return np.log(score / (1 - score))


def test_predictions_are_the_plain_models_scaled_and_moved(plain, model, calibration):
    before = xmtc.Model.from_pretrained(plain, device="cpu").predict(
        TEXTS, top_k=LABELS
    )
    for predictions, others in zip(
        model.predict(TEXTS, top_k=LABELS), before, strict=True
    ):
        scores = {p.label: p.score for p in others}
        logits = np.array([log_odds(scores[f"L{i:02d}"]) for i in range(LABELS)])
        expected = logits * calibration.scale_L.numpy() + calibration.offset_L.numpy()
        order = np.argsort(-expected, kind="stable")
        assert [p.label for p in predictions] == [f"L{i:02d}" for i in order]
        np.testing.assert_allclose(
            [log_odds(p.score) for p in predictions], expected[order], atol=1e-3
        )


def test_a_corpus_is_scored_alike_and_some_labels_keep_their_calibration(
    model, directory, tmp_path
):
    source = write_rows(tmp_path / "in.jsonl", 4)
    expected = model.predict(TEXTS, top_k=LABELS)
    for name, labels in (("all", None), ("some", ("L03", "L17"))):
        settings = Settings(
            top_k=LABELS, bfloat16=False, include=labels, columns=COLUMNS
        )
        score(directory, source, tmp_path / name, settings)
        for row, predictions in zip(
            read_output(tmp_path / name).to_pylist(), expected, strict=True
        ):
            wanted = [p for p in predictions if labels is None or p.label in labels]
            assert row["labels"] == [p.label for p in wanted]
            np.testing.assert_allclose(
                row["scores"], [p.score for p in wanted], atol=1e-5
            )


def test_evidence_sums_to_the_calibrated_logit(model, directory, tmp_path):
    score(
        directory,
        write_rows(tmp_path / "in.jsonl", 4),
        tmp_path / "out",
        Settings(top_k=3, bfloat16=False, evidence=True, columns=COLUMNS),
    )
    rows = read_output(tmp_path / "out").to_pylist()
    for text, predictions, row in zip(
        TEXTS, model.predict(TEXTS, top_k=3, evidence=True), rows, strict=True
    ):
        explanations = model.explain(text, [p.label for p in predictions])
        for prediction, explanation, words in zip(
            predictions, explanations, row["evidence"], strict=True
        ):
            total = (
                sum(word.contribution for word in explanation.words)
                + explanation.other
                + explanation.bias
            )
            assert total == pytest.approx(explanation.logit, abs=1e-4)
            assert explanation.logit == pytest.approx(
                log_odds(prediction.score), abs=1e-3
            )
            contributions = [word.contribution for word in prediction.evidence]
            np.testing.assert_allclose(
                [word["contribution"] for word in words], contributions, atol=1e-4
            )
