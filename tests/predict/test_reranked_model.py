"""A model with a language model as the last scorer: trained, resumed, asked with and without it, served."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tiny_runs
import xmtc
from gloo import run_gloo
from language_model import FITTED, LanguageModel, answering, loaded, with_reranker
from xmtc.errors import ConfigError
from xmtc.estimate.estimate import dry_run
from xmtc.fusion.reranking import RERANKER
from xmtc.pipeline import train_run
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.fingerprints import model_stages
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job, predict_texts
from xmtc.stages.run_stage import run_stage

TEXTS = [row["text"] for row in tiny_runs.documents(8, first=92)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reranked")


@pytest.fixture(scope="module")
def language_model() -> Iterator[LanguageModel]:
    with answering() as model:
        yield model


@pytest.fixture(scope="module")
def run(folder: Path, language_model: LanguageModel) -> Path:
    return train_run(loaded(folder, "ranked", with_reranker(language_model)))


@pytest.fixture(scope="module")
def plain(folder: Path) -> xmtc.Model:
    return xmtc.Model.from_pretrained(train_run(loaded(folder, "plain", FITTED)) / "model", device="cpu")


def scores(model: xmtc.Model) -> list[dict[str, float]]:
    return [{one.label: one.score for one in found} for found in model.predict(TEXTS, top_k=6)]


def test_it_raises_what_it_names_and_its_share_is_measured(run: Path, language_model: LanguageModel) -> None:
    model = xmtc.Model.from_pretrained(run / "model", device="cpu", reranker=language_model.url)
    for row, found in zip(tiny_runs.documents(8, first=92), scores(model), strict=True):
        assert set(row["labels"]) == set(list(found)[: len(row["labels"])])
    measured = json.loads((run / "eval" / "dev" / "scorers.json").read_text())
    assert measured["fused"]["ndcg@5"] > measured["without"][RERANKER]["ndcg@5"]
    assert RERANKER not in measured["alone"]


def test_without_it_the_model_answers_as_one_trained_without_it(
    run: Path, plain: xmtc.Model, language_model: LanguageModel
) -> None:
    asked = len(language_model.asked)
    assert scores(xmtc.Model.from_pretrained(run / "model", device="cpu")) == scores(plain)
    assert len(language_model.asked) == asked, "nobody typed its address"
    with answering(lambda *_: 500) as broken:
        assert scores(xmtc.Model.from_pretrained(run / "model", device="cpu", reranker=broken.url)) == scores(plain)
        assert broken.asked
    with pytest.raises(ConfigError, match="trained without a reranker"):
        plain.rerank_by(language_model.url)


def test_an_address_elsewhere_is_refused_where_training_did_not_allow_it(run: Path) -> None:
    with pytest.raises(ConfigError, match="remote: true"):
        xmtc.Model.from_pretrained(run / "model", device="cpu", reranker="https://api.example.org/v1")


def test_documents_with_and_without_an_answer_in_one_batch(run: Path, plain: xmtc.Model) -> None:
    def some(names: list[str], text: str) -> str:
        return "[1]" if text.endswith(" 92") else "no idea"

    with answering(some) as model:
        found = scores(xmtc.Model.from_pretrained(run / "model", device="cpu", reranker=model.url))
    assert found[0] != scores(plain)[0]
    assert found[1:] == scores(plain)[1:]


def test_its_share_is_explained_without_words(run: Path, language_model: LanguageModel) -> None:
    model = xmtc.Model.from_pretrained(run / "model", device="cpu", reranker=language_model.url)
    for found in model.explain(TEXTS[0], list(tiny_runs.LABELS)):
        rest = found.bias + found.special + sum(word.contribution for word in found.words)
        assert rest + sum(value for _, value in found.documents) == pytest.approx(found.logit, abs=1e-5)
        named = f"{found.label}ery" in TEXTS[0]
        assert (found.scorers[RERANKER] > 0) == named
    (best,) = model.predict([TEXTS[0]], top_k=6, evidence=True)
    assert [one.score for one in best] == pytest.approx([one.score for one in model.predict([TEXTS[0]], top_k=6)[0]])


def test_a_job_and_a_command_ask_who_is_named(run: Path, language_model: LanguageModel, tmp_path: Path, capsys) -> None:
    predict_texts(run / "model", TEXTS[:1], top_k=6, reranker=language_model.url)
    printed = {one["label"]: one["score"] for one in json.loads(capsys.readouterr().out)["labels"]}
    model = xmtc.Model.from_pretrained(run / "model", device="cpu", reranker=language_model.url)
    assert printed == pytest.approx(scores(model)[0], abs=1e-4)
    tiny_runs.write_jsonl(tmp_path / "in.jsonl", [{"id": str(at), "text": text} for at, text in enumerate(TEXTS)])
    asked, columns = len(language_model.asked), text_columns(["text"], "id")
    settings = Settings(top_k=6, bfloat16=False, columns=columns, reranker=language_model.url)
    job = make_job(run / "model", [str(tmp_path / "in.jsonl")], tmp_path / "out", settings)
    score_local(job, device="cpu", workers=2)
    assert len(language_model.asked) == asked + len(TEXTS)


def test_another_attempt_asks_nothing_again(run: Path, folder: Path, language_model: LanguageModel) -> None:
    asked, record = len(language_model.asked), json.loads((run / "run.json").read_text())
    lines = (run / "reranker.jsonl").read_text().splitlines()
    assert len(lines) == 32, "dev and test"
    config = loaded(folder, "ranked", with_reranker(language_model), "evaluate.resamples=21")
    train_run(config)
    assert len(language_model.asked) == asked
    assert json.loads((run / "run.json").read_text())["stages"]["scorers"] == record["stages"]["scorers"]


def scored_on_two(folder: Path, scorers: str) -> Path:
    config = loaded(folder, "two", scorers, "distributed.workers=2")
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    for stage in (Stage.SCORERS, Stage.EVALUATE):
        run_stage(stage, config, paths)
    return paths.root


def test_two_workers_ask_and_learn_as_one(
    run: Path, folder: Path, language_model: LanguageModel, tmp_path: Path
) -> None:
    asked = len(language_model.asked)
    two, _ = run_gloo(scored_on_two, 2, tmp_path, folder, with_reranker(language_model))
    texts = [one["messages"][0]["content"] for one in language_model.asked[asked:]]
    assert len(texts) == 33, "each document of dev and test, and the trial"
    assert len(set(texts)) == 33, "no document is asked about by both"
    for split in ("dev", "test"):
        ours, theirs = (json.loads((one / "eval" / split / "metrics.json").read_text()) for one in (two, run))
        assert {key: ours[key] for key in ("ndcg@5", "micro_f1", "ece")} == pytest.approx(
            {key: theirs[key] for key in ("ndcg@5", "micro_f1", "ece")}, abs=1e-6
        )


def test_only_the_last_stage_depends_on_it(folder: Path, language_model: LanguageModel) -> None:
    one, other = (
        dict(model_stages(loaded(folder, "ranked", with_reranker(language_model, best=best)), "corpus", "ranking"))
        for best in (4, 5)
    )
    assert [stage for stage in one if one[stage] != other[stage]] == ["evaluate"]


def test_training_stops_at_once_where_nobody_answers(folder: Path) -> None:
    with answering(lambda *_: 503) as model, pytest.raises(ConfigError, match=re.escape(model.url)):
        train_run(loaded(folder, "down", with_reranker(model)))
    assert not (folder / "runs" / "down" / "scorers").exists()


def test_training_stops_where_answers_end_and_continues(folder: Path, plain: xmtc.Model) -> None:
    with answering() as model:
        good, model.answer = model.answer, lambda names, text: "[1]" if text == "A text." else "no"
        config = loaded(folder, "halfway", with_reranker(model))
        with pytest.raises(ConfigError, match=r"answers for 0 of 16 documents"):
            train_run(config)
        model.answer = good
        train_run(config)


def test_a_model_that_knows_nothing_changes_little(folder: Path, plain: xmtc.Model) -> None:
    rng = np.random.default_rng(0)
    with answering(lambda names, text: str((1 + rng.permutation(len(names))[:2]).tolist())) as model:
        config = loaded(folder, "random", with_reranker(model, at_once=1))
        found = scores(xmtc.Model.from_pretrained(train_run(config) / "model", device="cpu", reranker=model.url))
    differences = [abs(found[row][label] - p) for row, one in enumerate(scores(plain)) for label, p in one.items()]
    assert np.mean(differences) < 0.15


def test_a_dry_run_counts_the_requests(folder: Path, language_model: LanguageModel, capsys) -> None:
    dry_run(loaded(folder, "ranked", with_reranker(language_model)))
    assert re.search(rf"requests to {language_model.url}: about 32,", capsys.readouterr().out)


def test_no_text_is_left_in_the_run(run: Path) -> None:
    for path in run.rglob("*"):
        if path.is_file():
            assert TEXTS[0].encode() not in path.read_bytes()
            assert b"fishery" not in path.read_bytes() or path.parent.name == "tokenizer" or "words" in path.name
