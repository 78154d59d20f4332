"""A server whose model asks a language model: up, down, and counted."""

from pathlib import Path

import pytest
from served import running

import tiny_runs
import xmtc
from language_model import answering, loaded, with_reranker
from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.models import Models
from xmtc.errors import ConfigError
from xmtc.pipeline import train_run

TEXTS = [row["text"] for row in tiny_runs.documents(4, first=92)]


def test_it_answers_with_and_without_the_language_model_and_counts_both(tmp_path: Path) -> None:
    with answering() as model:
        folder = train_run(loaded(tmp_path, "served", with_reranker(model))) / "model"
        plain = xmtc.Model.from_pretrained(folder, device="cpu").predict(TEXTS, top_k=6)
        asked = xmtc.Model.from_pretrained(folder, device="cpu", reranker=model.url).predict(TEXTS, top_k=6)
        with running(xmtc.Model.from_pretrained(folder, device="cpu"), reranker=model.url) as client:
            for wanted in (asked, plain):
                found = client.post("/predict", {"texts": TEXTS, "top_k": 6}).json()["predictions"]
                scores = [[one["score"] for one in labels] for labels in found]
                assert scores == [pytest.approx([one.score for one in labels], abs=1e-5) for labels in wanted]
                model.answer = lambda *_: 500
            lines = client.get("/metrics").text.splitlines()
    counts = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line.startswith("xmtc_reranked_total")}
    assert counts['xmtc_reranked_total{answered="false",model="served"}'] == len(TEXTS)
    assert counts['xmtc_reranked_total{answered="true",model="served"}'] >= len(TEXTS)
    assert all(text not in "\n".join(lines) for text in TEXTS)


def test_a_model_that_was_trained_without_one_is_not_served_with_one(model: xmtc.Model) -> None:
    with pytest.raises(ConfigError, match="trained without a reranker"):
        Models.single(model, ServeConfig(reranker="http://127.0.0.1:1/v1"))
