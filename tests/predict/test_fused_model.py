"""A model whose head is fused with other scorers: trained, evaluated, loaded, asked, explained and extended."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from scipy.special import expit
from torch import Tensor

import tiny_runs
import xmtc
from xmtc.artefact.export import load_model
from xmtc.config.load import load_config
from xmtc.data.collate import Batch
from xmtc.errors import ConfigError, DataError
from xmtc.fusion.config import FusionConfig
from xmtc.fusion.occurrences import CO_OCCURRENCE
from xmtc.labels.relabel import merge_labels, remove_labels, rename_labels
from xmtc.pipeline import train_run
from xmtc.report.evidence import explain_text, print_sections, write_page
from xmtc.report.run_results import RunResults
from xmtc.run.config import RunConfig
from xmtc.run.directory import Stage
from xmtc.run.fingerprints import Fingerprints
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job, predict_texts
from xmtc.scorers.base import Features
from xmtc.scorers.linear import Linear
from xmtc.scorers.votes import Votes
from xmtc.stages.table import needed_stages

WORDS = "{kind: linear, penalty: 0.3}, {kind: word_neighbours, neighbours: 5}, {kind: label_text}"
STATES = "{kind: state_neighbours, neighbours: 5}, {kind: label_embeddings}"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return fused_run(tmp_path_factory.mktemp("fused"), f"[{WORDS}, {STATES}]")


def fused_run(folder: Path, scorers: str, *overrides: str) -> Path:
    torch.set_num_threads(1)
    config = tiny_runs.write_config(folder)
    return train_run(tiny_runs.load(config, f"model.scorers={scorers}", *overrides))


SCORERS = (
    "linear",
    "word_neighbours",
    "label_text",
    "state_neighbours",
    "label_embeddings",
)
TEXTS = [row["text"] for row in tiny_runs.documents(6)]  # of training documents


def test_dev_and_test_are_measured_and_the_scorers_one_by_one(run):
    for split in ("dev", "test"):
        metrics = json.loads((run / "eval" / split / "metrics.json").read_text())
        assert 0 <= metrics["ndcg@5"] <= 1
        assert metrics["micro_auc"] is not None
    found = json.loads((run / "eval" / "dev" / "scorers.json").read_text())
    assert found["names"] == [*SCORERS, "head"]
    assert set(found["alone"]) == set(found["names"])
    assert RunResults.load(run, "test").scorers == found
    assert (
        "Scorers alone, fused, and left out"
        in (run / "eval" / "test" / "report.html").read_text()
    )


def test_probabilities_are_the_same_in_memory_and_in_a_job(run, tmp_path):
    texts = TEXTS
    model = xmtc.Model.from_pretrained(run / "model", device="cpu")
    predicted = model.predict(texts, top_k=4)
    pd.DataFrame({"id": range(len(texts)), "text": texts}).to_parquet(
        tmp_path / "in.parquet"
    )
    settings = Settings(top_k=4, bfloat16=False, columns=text_columns(["text"], "id"))
    job = make_job(
        run / "model", [str(tmp_path / "in.parquet")], tmp_path / "out", settings
    )
    score_local(job, device="cpu", workers=2)
    table = pd.concat(
        map(pd.read_parquet, sorted((tmp_path / "out").glob("part-*.parquet")))
    )
    for row, found in zip(table.itertuples(), predicted, strict=True):
        assert list(row.labels) == [one.label for one in found]
        assert list(row.scores) == pytest.approx([one.score for one in found], abs=1e-5)


def test_a_job_gives_the_words_that_the_model_gives(run, tmp_path):
    expected = xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
        TEXTS, top_k=3, evidence=True
    )
    pd.DataFrame({"id": range(len(TEXTS)), "text": TEXTS}).to_parquet(
        tmp_path / "in.parquet"
    )
    settings = Settings(
        top_k=3, bfloat16=False, columns=text_columns(["text"], "id"), evidence=True
    )
    job = make_job(
        run / "model", [str(tmp_path / "in.parquet")], tmp_path / "out", settings
    )
    score_local(job, device="cpu", workers=2)
    table = pd.concat(
        map(pd.read_parquet, sorted((tmp_path / "out").glob("part-*.parquet")))
    )
    for row, predicted in zip(table.itertuples(), expected, strict=True):
        assert list(row.labels) == [one.label for one in predicted]
        for words, one in zip(row.evidence, predicted, strict=True):
            assert [word["text"] for word in words] == [
                word.text for word in one.evidence
            ]
            contributions = [word.contribution for word in one.evidence]
            assert [word["contribution"] for word in words] == pytest.approx(
                contributions, abs=1e-4
            )


def test_bfloat16_changes_the_hidden_states_and_nothing_else(tmp_path):
    summary = 'model.head={"kind": "flat", "pooling": {"kind": "summary"}}'
    settings = ("distributed.precision=bf16", summary, *tiny_runs.RANDOM_START)
    folder = fused_run(tmp_path, f"[{WORDS}, {STATES}]", *settings) / "model"
    model = xmtc.Model.from_pretrained(folder, device="cpu", bfloat16=True)
    found = model.predict(TEXTS, top_k=4, evidence=True)
    exact = xmtc.Model.from_pretrained(folder, device="cpu", bfloat16=False).predict(
        TEXTS, top_k=4
    )
    for rounded, scored in zip(found, exact, strict=True):
        assert [one.score for one in rounded] == pytest.approx(
            [one.score for one in scored], abs=0.05
        )
    pd.DataFrame({"id": range(len(TEXTS)), "text": TEXTS}).to_parquet(
        tmp_path / "in.parquet"
    )
    job_settings = Settings(
        top_k=4, bfloat16=True, columns=text_columns(["text"], "id")
    )
    job = make_job(
        folder, [str(tmp_path / "in.parquet")], tmp_path / "out", job_settings
    )
    score_local(job, device="cpu", workers=1)
    table = pd.concat(
        map(pd.read_parquet, sorted((tmp_path / "out").glob("part-*.parquet")))
    )
    for row, rounded in zip(table.itertuples(), found, strict=True):
        assert list(row.scores) == pytest.approx(
            [one.score for one in rounded], abs=0.05
        )


def test_words_documents_and_bias_sum_to_the_logit(run):
    model = xmtc.Model.from_pretrained(run / "model", device="cpu")
    text = TEXTS[0]
    scores = {one.label: one.score for one in model.predict([text], top_k=6)[0]}
    for found in model.explain(text, list(scores)):
        words = sum(word.contribution for word in found.words)
        others = sum(value for _, value in (*found.documents, *found.names))
        assert found.bias + found.other + words + others == pytest.approx(
            found.logit, abs=1e-5
        )
        assert set(found.scorers) == {*SCORERS, "head", CO_OCCURRENCE}
    (predicted,) = model.predict([text], top_k=6, evidence=True)
    explanations = model.explain(text, [one.label for one in predicted])
    kinds = set()
    for one, found in zip(predicted, explanations, strict=True):
        assert [(part.text, part.kind) for part in one.evidence] == [
            (part.text, part.kind) for part in found.top(5)
        ]
        assert [part.contribution for part in one.evidence] == pytest.approx(
            [part.contribution for part in found.top(5)], abs=1e-5
        )
        kinds |= {part.kind for part in found.top(100)}
    assert kinds == {"word", "name", "documents"}
    best = model.explain(text, [max(scores, key=lambda label: scores[label])])[0]
    assert best.documents, "neighbours vote for the best label of a training text"
    named = model.labels.names[model.labels.index(best.label)]
    assert [name for name, _ in best.names] in ([], [named])
    assert 1 / (1 + np.exp(-best.logit)) == pytest.approx(
        max(scores.values()), abs=1e-3
    )


def test_the_parts_that_the_terminal_and_the_page_show_sum_to_the_logit(run, tmp_path):
    model, console = (
        xmtc.Model.from_pretrained(run / "model", device="cpu"),
        Console(record=True, width=200),
    )
    sections = explain_text(model, TEXTS[0], [], 3)
    print_sections(sections, console)
    write_page(tmp_path / "page.html", sections, title="a", model="m")
    page, said = (tmp_path / "page.html").read_text(), console.export_text()
    assert "similar training documents" in said
    for section in sections:
        assert section.parts in page
        line = f"logit {section.explanation.logit:+.3f} = {section.parts}\n"
        assert line in said
        total, *parts = map(float, re.findall(r"[-+]\d+\.\d{3}", line))
        assert sum(parts) == pytest.approx(total, abs=0.003)


def test_a_label_that_no_scorer_proposes_is_explained(run):
    model = xmtc.Model.from_pretrained(run / "model", device="cpu")
    assert model.scorer.ensemble is not None
    model.scorer.ensemble = replace(
        model.scorer.ensemble, config=FusionConfig(candidates=1)
    )
    proposed = {one.label for one in model.predict(TEXTS[:1], top_k=6)[0]}
    other = next(label for label in model.labels.labels if label not in proposed)
    best, chosen = explain_text(model, TEXTS[0], [other], 1)
    assert (best.chosen, chosen.chosen, chosen.explanation.label) == (
        False,
        True,
        other,
    )
    for section in (best, chosen):
        assert expit(section.explanation.logit) == pytest.approx(
            section.probability, abs=1e-5
        )


def test_a_text_without_a_word_for_a_label_does_not_blame_the_pooling(run):
    """The pooling of this head reads all words."""
    model = xmtc.Model.from_pretrained(run / "model", device="cpu")
    sections = explain_text(model, "qzx", model.labels.labels, 0)
    silent = [
        one
        for one in sections
        if not any(word.contribution for word in one.explanation.words)
    ]
    assert silent
    assert {one.spread for one in silent} == {
        "No word has a contribution: no scorer knows one"
    }


def test_the_encoder_runs_once_for_labels_and_evidence(run, monkeypatch):
    model = xmtc.Model.from_pretrained(run / "model")
    encode, passes = model.scorer.classifier.encode, []

    def counted(batch: Batch) -> Tensor:
        passes.append(batch.hidden_BTD is None)
        return encode(batch)

    monkeypatch.setattr(model.scorer.classifier, "encode", counted)
    (explained,) = model.predict(TEXTS[:1], top_k=3, evidence=True)
    assert sum(passes) == 1
    (plain,) = model.predict(TEXTS[:1], top_k=3)
    assert [one.label for one in explained] == [one.label for one in plain]
    assert [one.score for one in explained] == pytest.approx(
        [one.score for one in plain], abs=1e-6
    )
    assert any(one.evidence for one in explained)


def test_only_some_labels(run, tmp_path):
    texts = TEXTS
    labels = [
        one.label
        for one in xmtc.Model.from_pretrained(run / "model").predict(
            texts[:1], top_k=6
        )[0]
    ][1:3]
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "in.parquet")
    settings = Settings(
        top_k=4,
        bfloat16=False,
        include=tuple(labels),
        columns=text_columns(["text"], None),
    )
    job = make_job(
        run / "model", [str(tmp_path / "in.parquet")], tmp_path / "out", settings
    )
    score_local(job, device="cpu", workers=1)
    table = pd.concat(map(pd.read_parquet, (tmp_path / "out").glob("part-*.parquet")))
    assert all(set(row) == set(labels) for row in table["labels"])


def test_excluded_labels_are_hidden_and_the_others_stay_as_they_are(run):
    model = xmtc.Model.from_pretrained(run / "model")
    (whole,) = model.predict(TEXTS[:1], top_k=6)
    (rest,) = model.predict(
        TEXTS[:1], top_k=6, exclude=[whole[0].label, whole[2].label]
    )
    assert rest == [whole[1], *whole[3:]]
    (some,) = model.predict(
        TEXTS[:1], top_k=6, include=[whole[3].label, whole[1].label]
    )
    assert [one.label for one in some] == [whole[1].label, whole[3].label]


def test_a_new_label_is_found_by_its_name(run):
    model = load_model(run / "model")
    ensemble, width = model.ensemble, model.classifier.encoder.width
    assert ensemble is not None
    word = ensemble.vocabulary.terms[0]
    longer = ensemble.extended(
        [word, "a name that no document has"],
        lambda some: np.ones((len(some), width), np.float32),
    )
    labels = len(ensemble.fusion.counts_L) if ensemble.fusion else 0
    assert {scorer.labels for scorer in longer.scorers.values()} == {labels + 2}
    rows = longer.vocabulary.words([word])
    best = longer.scorers["label_text"].score(Features(rows)).top(3).label_ids_NK[0]
    assert labels in best
    assert labels + 1 not in best
    before, after = (
        one.scorers["linear"].score(Features(rows)) for one in (ensemble, longer)
    )
    known = np.arange(labels)[None].astype(np.int32)
    np.testing.assert_array_equal(before.at(known), after.at(known))


def test_a_removed_label_is_never_predicted_and_the_scorers_of_the_others_stay(
    run, tmp_path
):
    before = load_model(run / "model")
    removed = before.labels.labels[0]
    done = remove_labels(run / "model", [removed], tmp_path / "less")
    assert any(
        "fused probabilities of the other labels may change" in note
        for note in done.notes
    )
    after = load_model(tmp_path / "less")
    assert before.ensemble is not None
    assert after.ensemble is not None
    vocabulary = before.ensemble.vocabulary
    rng = np.random.default_rng(0)
    features = Features(
        vocabulary.words(TEXTS), rng.normal(size=(len(TEXTS), 32)).astype(np.float32)
    )
    ids_NK = np.broadcast_to(
        np.arange(len(after.labels), dtype=np.int32), (len(TEXTS), len(after.labels))
    )
    for name, scorer in before.ensemble.scorers.items():
        if not scorer.reads_states:
            less = after.ensemble.scorers[name].score(features).at(ids_NK)
            np.testing.assert_array_equal(less, scorer.score(features).at(ids_NK + 1))
    fusions = before.ensemble.fusion, after.ensemble.fusion
    assert [one.counts_L.tolist() for one in fusions if one][
        1
    ] == before.labels.train_counts[1:].tolist()
    model = xmtc.Model.from_pretrained(tmp_path / "less", device="cpu")
    for found in model.predict(TEXTS, top_k=len(before.labels)):
        assert removed not in {one.label for one in found}


def test_a_merged_label_has_the_sum_of_the_weights_and_the_documents_of_both(
    run, tmp_path
):
    before = load_model(run / "model")
    kept, other = before.labels.labels[2], before.labels.labels[0]
    merge_labels(run / "model", {kept: [other]}, tmp_path / "merged")
    after = load_model(tmp_path / "merged")
    assert before.ensemble is not None
    assert after.ensemble is not None
    linear, merged = (
        one.scorers["linear"] for one in (before.ensemble, after.ensemble)
    )
    assert isinstance(linear, Linear)
    assert isinstance(merged, Linear)
    weights, summed = linear.weights_WL.toarray(), merged.weights_WL.toarray()
    np.testing.assert_allclose(summed[:, 1], weights[:, 2] + weights[:, 0], atol=1e-6)
    np.testing.assert_array_equal(summed[:, 2:], weights[:, 3:])
    neighbours = before.ensemble.scorers["word_neighbours"]
    assert isinstance(neighbours, Votes)
    votes = neighbours.labels_NL.toarray()
    assert after.labels.train_counts[1] == ((votes[:, 0] + votes[:, 2]) > 0).sum()
    found = xmtc.Model.from_pretrained(tmp_path / "merged", device="cpu").predict(
        TEXTS, top_k=len(before.labels)
    )
    old = xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
        TEXTS, top_k=1
    )
    for row, best in zip(found, old, strict=True):
        assert other not in {one.label for one in row}
        if best[0].label in (kept, other):
            assert kept in [one.label for one in row[:2]]


def test_a_renamed_label_is_predicted_with_the_same_probability(run, tmp_path):
    old = xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
        TEXTS[:1], top_k=3
    )[0]
    rename_labels(run / "model", {old[0].label: "another name"}, tmp_path / "new")
    new = xmtc.Model.from_pretrained(tmp_path / "new", device="cpu").predict(
        TEXTS[:1], top_k=3
    )[0]
    assert [one.label for one in new] == [
        "another name",
        *(one.label for one in old[1:]),
    ]
    assert [one.score for one in new] == [one.score for one in old]


def fingerprints(config: RunConfig) -> dict[Stage, str]:
    """Fingerprints of the stages that need the model."""
    entries = [entry for entry in needed_stages(config) if entry.load_work is not None]
    return {
        entry.stage: entry.fingerprint(Fingerprints(config, corpus="corpus"))
        for entry in entries
    }


def test_a_changed_fusion_trains_nothing_again(run):
    base = load_config(RunConfig, run / "config.yaml")
    other = load_config(RunConfig, run / "config.yaml", ["model.fusion.candidates=20"])
    before, after = (fingerprints(config) for config in (base, other))
    assert [stage for stage in before if before[stage] != after[stage]] == [
        Stage.EVALUATE
    ]


def test_a_changed_ranking_trains_again_only_with_planted_attention(tmp_path):
    path = tiny_runs.write_config(tmp_path)
    for parts, changed in (
        ("[attention]", {Stage.PLANT, Stage.FINETUNE, Stage.EVALUATE}),
        ("[rows]", set()),
    ):
        settings = path, f"plant.parts={parts}"
        before, after = (
            fingerprints(tiny_runs.load(*settings, f"mig.top_k={k}")) for k in (10, 20)
        )
        assert {stage for stage in before if before[stage] != after[stage]} == changed


def test_states_of_a_frozen_encoder_come_before_training(tmp_path):
    frozen = "finetune.phases=[{epochs: 1}]"
    scorers = "model.scorers=[{kind: state_neighbours}]"
    config = tiny_runs.load(tiny_runs.write_config(tmp_path), scorers, frozen)
    assert next(iter(fingerprints(config))) is Stage.SCORERS
    trained = tiny_runs.load(tiny_runs.write_config(tmp_path), scorers)
    found = list(fingerprints(trained))
    assert (found[0], found[-2]) == (Stage.SCORERS, Stage.REFIT)


def test_without_a_head_nothing_is_trained(tmp_path):
    run = fused_run(
        tmp_path, f"[{WORDS}, {STATES}]", "model.head={kind: none}", "plant.parts=[]"
    )
    assert not (run / "checkpoints").exists()
    model = xmtc.Model.from_pretrained(run / "model", device="cpu")
    found = model.predict(TEXTS, top_k=2)
    assert (
        json.loads((run / "eval" / "test" / "metrics.json").read_text())["ndcg@5"] > 0.9
    )
    reasons = model.explain(TEXTS[0], [found[0][0].label])[0]
    assert set(reasons.scorers) == {*SCORERS, CO_OCCURRENCE}


@pytest.mark.parametrize("trains", [False, True], ids=["frozen", "trained"])
def test_scorers_that_are_fitted_on_dev_too_keep_the_fusion(tmp_path, trains):
    settings = (
        ("finetune.patience=0",)
        if trains
        else ("model.head={kind: none}", "plant.parts=[]")
    )
    runs = [
        fused_run(
            tmp_path,
            f"[{WORDS}, {STATES}]",
            *settings,
            f"name=r{both}",
            f"evaluate.fit_on_dev={both}",
        )
        for both in (False, True)
    ]
    once, again = (load_model(run / "model").ensemble for run in runs)
    assert once is not None
    assert again is not None
    assert list(again.doc_ids) == [
        *once.doc_ids,
        *(row["id"] for row in tiny_runs.documents(16, first=60)),
    ]
    assert [
        len(one.scorers["word_neighbours"].labels_NL.indptr) for one in (once, again)
    ] == [61, 77]
    assert once.fusion is not None
    assert again.fusion is not None
    np.testing.assert_array_equal(
        once.fusion.maps[0].log_odds_Q, again.fusion.maps[0].log_odds_Q
    )
    dev, test = (
        [pd.read_parquet(run / "eval" / split / "predictions.parquet") for run in runs]
        for split in ("dev", "test")
    )
    assert dev[0].equals(dev[1])
    assert not test[0].equals(test[1])


def test_the_first_result_is_a_model(tmp_path, monkeypatch):
    def stop(worker: object) -> None:
        raise ConfigError("stopped")

    monkeypatch.setattr("xmtc.stages.plant.plant", stop)
    with pytest.raises(ConfigError, match="stopped"):
        fused_run(tmp_path, f"[{WORDS}]")
    model = xmtc.Model.from_pretrained(
        tmp_path / "runs" / "tiny" / "model", device="cpu"
    )
    assert model.predict(TEXTS, top_k=1)[0][0].predicted
    report = (tmp_path / "runs" / "tiny" / "eval" / "dev" / "report.html").read_text()
    assert "<h2>Scorers</h2>" in report


def test_names_are_in_the_language_that_is_asked_for(run):
    model = xmtc.Model.from_pretrained(run / "model")
    german = ["", *(f"{name} auf Deutsch" for name in model.labels.names[1:])]
    model.scorer.labels = replace(model.labels, translations={"de": german})
    (plain,), (translated,) = (
        model.predict(TEXTS[:1], top_k=6),
        model.predict(TEXTS[:1], top_k=6, language="de"),
    )
    assert [one.label for one in plain] == [one.label for one in translated]
    for one, other in zip(plain, translated, strict=True):
        assert other.name == (german[model.labels.index(one.label)] or one.name)
    with pytest.raises(DataError, match=r"'fr'.*there are: de"):
        model.predict(TEXTS[:1], language="fr")
    with pytest.raises(DataError, match="name_de"):
        predict_texts(run / "model", TEXTS[:1], language="de")
