"""Scoring: the same scores whatever the batches, evidence that sums to the logit, bad input."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import xmtc
from trial_model import BERT, LABELS, TEXTS, export
from xmtc.data.collate import Collator
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.errors import CheckpointError, ConfigError, DataError, XmtcError
from xmtc.fusion.decision import Decision, Outcomes
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, MaxPoolConfig
from xmtc.models.encoders.light_config import EmbeddingConfig, MultilevelConfig
from xmtc.models.heads.config import FlatConfig
from xmtc.models.poolings.config import AttentionPoolingConfig, PlainPoolingConfig
from xmtc.predict import ranking
from xmtc.predict.evidence import merge_words
from xmtc.predict.ranking import Scoring, score_split
from xmtc.report.evidence import explain_text


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture(scope="module")
def model(directory):
    return xmtc.Model.from_pretrained(directory, device="cpu")


def documents(model, texts):
    return model.scorer.tokenise(texts)


def collator(model, texts):
    return Collator(
        documents(model, texts), model.scorer.tokenizer, window=24, overlap=6
    )


def test_predictions_are_the_classifiers_best_labels(model):
    collate = collator(model, TEXTS)
    for row, predictions in enumerate(model.predict(TEXTS, top_k=5)):
        with torch.no_grad():
            logits_L = model.scorer.classifier(
                collate(MicroBatch(np.array([row]), np.ones(1, np.float32)))
            )[0]
        best = torch.sort(logits_L, descending=True)
        assert [p.label for p in predictions] == [f"L{i:02d}" for i in best.indices[:5]]
        np.testing.assert_allclose(
            [p.score for p in predictions], best.values[:5].sigmoid(), atol=1e-5
        )
        assert predictions[0].name == predictions[0].label.lower()


def test_batches_change_nothing(model, directory):
    together = model.predict(TEXTS, top_k=LABELS)
    small = xmtc.Model.from_pretrained(
        directory, device="cpu", tokens_per_batch=1
    ).predict(TEXTS, top_k=LABELS)
    for first, second in zip(together, small, strict=True):
        assert {p.label for p in first} == {p.label for p in second}
        np.testing.assert_allclose(
            [p.score for p in first], [p.score for p in second], atol=1e-5
        )


def test_a_threshold_leaves_labels_out(model):
    limit = model.predict(TEXTS[:1], top_k=5)[0][2].score
    assert len(model.predict(TEXTS[:1], top_k=5, threshold=limit)[0]) == 3
    assert model.predict(TEXTS[:1], threshold=1.0) == [[]]
    assert len(model.predict(TEXTS[:1], threshold=1.0, least=2)[0]) == 2
    assert model.decision.threshold == 0.4
    ranked = model.predict(TEXTS, top_k=LABELS)
    assert all(
        one.predicted == (one.score >= np.float32(0.4)) for row in ranked for one in row
    )
    tuned = model.predict(TEXTS, top_k=LABELS, threshold="tuned")
    assert tuned == [[one for one in row if one.predicted] for row in ranked]
    assert 0 < sum(map(len, tuned)) < sum(map(len, ranked))


def test_a_rule_gives_all_its_labels_unless_a_number_is_given(directory):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    none = np.zeros((0, 1), np.float32)
    model.scorer.outcomes = Outcomes.of(
        none.astype(np.int32),
        none,
        none > 0,
        np.zeros(LABELS, np.int64),
        calibrated=False,
    )
    assert [len(best) for best in model.predict(TEXTS, threshold="top_k=20")] == [
        20
    ] * len(TEXTS)
    assert [len(best) for best in model.predict(TEXTS, 5, threshold="top_k=20")] == [
        5
    ] * len(TEXTS)
    model.scorer.decision = Decision(0.0)
    assert [len(best) for best in model.predict(TEXTS, threshold="tuned")] == [
        LABELS
    ] * len(TEXTS)
    assert [len(best) for best in model.predict(TEXTS)] == [10] * len(TEXTS)
    assert model.scorer.default_top_k("top_k=200") == 200


def test_a_models_own_rule_is_the_decision_in_use_whatever_outcomes_it_keeps(directory):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    model.scorer.decision = Decision(0.0003, None, "budget=20")
    assert model.predict(TEXTS, threshold="budget=20") == model.predict(
        TEXTS, threshold="tuned"
    )


def test_single_label_scores_are_a_distribution(tmp_path):
    model = xmtc.Model.from_pretrained(
        export(tmp_path / "m", FlatConfig(), "single_label"), device="cpu"
    )
    for predictions in model.predict(TEXTS, top_k=1000):
        assert len(predictions) == LABELS
        assert sum(p.score for p in predictions) == pytest.approx(1, abs=1e-5)
        assert [p.predicted for p in predictions] == [True] + [False] * (LABELS - 1)


def test_a_single_label_model_predicts_the_best_label(tmp_path):
    model = xmtc.Model.from_pretrained(
        export(tmp_path / "m", FlatConfig(), "single_label"), device="cpu"
    )
    best = [predictions[:1] for predictions in model.predict(TEXTS, top_k=2)]
    assert (
        model.predict(TEXTS) == model.predict(TEXTS, top_k=5, threshold="tuned") == best
    )


@pytest.mark.parametrize(
    "pooling",
    [
        PlainPoolingConfig(),
        PlainPoolingConfig(kind="max"),
        AttentionPoolingConfig(heads=2),
    ],
)
def test_a_pooled_model_takes_its_logits_apart(tmp_path, pooling):
    encoder = MultilevelConfig(
        embedding=EmbeddingConfig(width=16), width=16, local_radius=3, window=24
    )
    folder = export(tmp_path / "m", FlatConfig(pooling=pooling), encoder=encoder)
    model = xmtc.Model.from_pretrained(folder, device="cpu")
    text, probability = (
        TEXTS[3],
        {p.label: p.score for p in model.predict(TEXTS[3:], top_k=LABELS)[0]},
    )
    for one in model.explain(text, ["L03", "L11"]):
        words = sum(word.contribution for word in one.words)
        assert one.logit == pytest.approx(words + one.other + one.bias, abs=1e-4)
        assert 1 / (1 + np.exp(-one.logit)) == pytest.approx(
            probability[one.label], abs=1e-4
        )
        assert sum(one.attention) == pytest.approx(
            1, abs=0.2
        )  # [CLS] and [SEP] have the rest


@pytest.mark.parametrize("row", range(len(TEXTS)))
def test_evidence_sums_to_the_logit(model, row):
    predictions = model.predict(TEXTS, top_k=3, evidence=True)[row]
    explanations = model.explain(TEXTS[row], [p.label for p in predictions])
    for prediction, explanation in zip(predictions, explanations, strict=True):
        total = (
            sum(word.contribution for word in explanation.words)
            + explanation.other
            + explanation.bias
        )
        assert total == pytest.approx(explanation.logit, abs=1e-5)
        assert explanation.logit == pytest.approx(
            np.log(prediction.score / (1 - prediction.score)), abs=1e-3
        )
        assert all(
            word.text == TEXTS[row][word.start : word.end] for word in explanation.words
        )
        assert prediction.evidence == explanation.top(5)
        assert all(word.contribution > 0 for word in prediction.evidence)


def test_pieces_of_a_word_are_merged():
    text = "Haemodialysis, low-dose 2.5mg"
    offsets = [(0, 4), (4, 13), (13, 14), (14, 18), (18, 19), (19, 23), (23, 29)]
    words, outside = merge_words(text, offsets, np.arange(1, 8, dtype=np.float32))
    assert [(w.text, w.contribution) for w in words] == [
        ("Haemodialysis", 3),
        ("low-dose", 15),
        ("2.5mg", 7),
    ]
    assert outside == 3  # of the comma
    assert merge_words(" a", [(0, 1), (0, 2)], np.array([1, 2], np.float32))[1] == 1
    glued, outside = merge_words(
        "a movie. Bad", [(0, 1), (1, 8), (8, 12)], np.array([1, 2, 4], np.float32)
    )
    assert [(word.text, word.contribution) for word in glued] == [
        ("a", 1),
        ("movie", 2),
        ("Bad", 4),
    ]
    assert outside == 0


@pytest.mark.parametrize(
    "word",
    [
        "हिन्दी",
        "مُحَمَّد",
        "தமிழ்",
        "cafe\u0301",
        "Donau\u00addampf",
        "می\u200cخواهم",
        "\u2764\ufe0f",
        "👨\u200d👩",
    ],
)
def test_marks_and_vowel_signs_are_part_of_their_word(word):
    offsets = [
        (place, place + 1) for place in range(len(word))
    ]  # a tokenizer may leave marks out
    (found,), of_comma = merge_words(
        f"{word} ,", [*offsets, (len(word) + 1, len(word) + 2)], np.ones(len(word) + 1)
    )
    assert (found.text, found.contribution, of_comma) == (word, len(word), 1)


def test_signs_are_no_words():
    text = "(a) : – § 5 + €"
    places = [match for match in enumerate(text) if match[1] != " "]
    offsets = [(place, place + 1) for place, _ in places]
    words, outside = merge_words(text, offsets, np.ones(len(places), np.float32))
    assert [word.text for word in words] == ["a", "5"]
    assert outside == len(places) - 2


def test_scores_land_in_the_rows_they_belong_to(model, monkeypatch):
    texts = [TEXTS[i % 3] for i in range(17)]
    split, collate = documents(model, texts), collator(model, texts)
    seen, done = [], []
    ids_NK, scores_NK = score_split(
        model.scorer.classifier,
        split,
        collate,
        Scoring(LABELS, top_k=4, tokens_per_batch=32),
        progress=done.append,
        on_logits=lambda rows_B, logits_BL: seen.append((rows_B, logits_BL)),
    )
    assert (ids_NK.dtype, scores_NK.dtype, ids_NK.shape) == (
        np.int32,
        np.float32,
        (17, 4),
    )
    np.testing.assert_array_equal(ids_NK, ids_NK[np.arange(17) % 3])
    assert (np.diff(scores_NK, axis=1) <= 0).all()
    assert sum(done) == 17
    for rows_B, logits_BL in seen:
        np.testing.assert_array_equal(logits_BL.argmax(1), ids_NK[rows_B, 0])
    monkeypatch.setattr(ranking, "_LOGIT_BYTES", 4 * LABELS)
    one_by_one = []
    again_NK, _ = score_split(
        model.scorer.classifier,
        split,
        collate,
        Scoring(LABELS, top_k=4),
        progress=one_by_one.append,
    )
    assert one_by_one == [1] * 17
    np.testing.assert_array_equal(again_NK, ids_NK)


def test_ranks_share_the_batches(model):
    split, collate = documents(model, TEXTS), collator(model, TEXTS)
    batches = evaluation_batches(split.lengths, 40)
    assert len(batches) > 1
    scoring = Scoring(LABELS, top_k=3)
    parts = [
        score_split(
            model.scorer.classifier, split, collate, scoring, batches=batches[r::2]
        )[0]
        for r in (0, 1)
    ]
    whole, _ = score_split(model.scorer.classifier, split, collate, scoring)
    np.testing.assert_array_equal(np.maximum(*parts), whole)
    assert ((parts[0] == -1) != (parts[1] == -1)).all()


def test_a_diverged_model_is_refused_and_its_mode_restored(directory):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    model.scorer.classifier.head.bias.data[3] = torch.nan
    model.scorer.classifier.train()
    with pytest.raises(XmtcError, match="document 0 has scores that are not finite"):
        model.predict(TEXTS)
    assert model.scorer.classifier.training


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "a list of texts"),
        (["a", None], "text 1 is of type NoneType"),
        (["a", " \n"], "text 1 has no tokens"),
    ],
)
def test_bad_texts_are_named_by_their_row(model, texts, message):
    with pytest.raises(DataError, match=message):
        model.predict(texts)


def test_no_texts_no_predictions(model):
    assert model.predict([]) == []


def test_without_labels_the_predicted_ones_are_explained(model):
    for text in ("lawery of lawing", "nothing that anybody has seen"):
        best = model.predict([text])[0]
        predicted = [one.label for one in best if one.predicted] or [best[0].label]
        assert [one.label for one in model.explain(text)] == predicted


def test_an_unknown_label_device_or_folder_is_named(model, directory, tmp_path):
    with pytest.raises(DataError, match="'nonsense'"):
        model.explain("text", ["nonsense"])
    for device in ("gpu", "meta", None):
        with pytest.raises(ConfigError, match=f"no device {device!r}"):
            xmtc.Model.from_pretrained(directory, device=device)
    for wrong in (3, None, b"runs/quickstart/model", [directory]):
        with pytest.raises(
            ConfigError, match=f"a {type(wrong).__name__} is no model: give its folder"
        ):
            xmtc.Model.from_pretrained(wrong)
    with pytest.raises(CheckpointError, match=r"config\.json: missing"):
        xmtc.Model.from_pretrained(tmp_path)


def test_importing_the_package_is_cheap():
    subprocess.run(
        [sys.executable, "-c", "import sys, xmtc; assert 'torch' not in sys.modules"],
        check=True,
    )


def test_unknown_attributes_of_the_package_are_errors():
    with pytest.raises(AttributeError, match="'Modle'"):
        _ = xmtc.Modle


def test_a_model_that_reads_only_the_first_token_says_so(tmp_path):
    encoder = MaxPoolConfig(
        base=HuggingFaceConfig(from_config=BERT, window=24),
        variant="cls_attention",
        last_layers=2,
    )
    folder = export(
        tmp_path / "m",
        FlatConfig(pooling=PlainPoolingConfig(kind="first")),
        encoder=encoder,
    )
    section = explain_text(
        xmtc.Model.from_pretrained(folder, device="cpu"), TEXTS[0], [], 1
    )[0]
    assert not any(word.contribution for word in section.explanation.words)
    assert "reads only a special token" in section.spread


def test_every_entry_point_takes_texts_through_the_front_door(model):
    expected = model.predict(TEXTS, top_k=2, evidence=True)
    assert model.predict((text for text in TEXTS), top_k=2, evidence=True) == expected
    assert (
        model.predict(pd.Series(TEXTS, index=[4, 3, 2, 1]), top_k=2, evidence=True)
        == expected
    )
    assert (
        model.predict(pa.chunked_array([TEXTS]), top_k=np.int32(2), evidence=True)
        == expected
    )
    for wrong in (
        pd.DataFrame({"name": TEXTS}),
        {"text": TEXTS[0]},
        "text",
        b"text",
        [b"text"],
        ["\ud83d"],
        None,
    ):
        with pytest.raises(DataError):
            model.predict(wrong)
    assert model.explain(TEXTS[0], "L03") == model.explain(TEXTS[0], ("L03",))
    assert [
        section.explanation.label for section in explain_text(model, TEXTS[0], "L03", 0)
    ] == ["L03"]
    for wrong_text, labels in (
        (TEXTS, ["L03"]),
        (None, ["L03"]),
        ("\udc00", ["L03"]),
        (TEXTS[0], [3]),
        (TEXTS[0], 3),
    ):
        with pytest.raises(DataError):
            model.explain(wrong_text, labels)
        with pytest.raises(DataError):
            explain_text(model, wrong_text, labels, 1)


@pytest.mark.parametrize(
    "setting",
    [
        *({"top_k": wrong} for wrong in (-1, 0, "5", 2.0, True)),
        *({"threshold": wrong} for wrong in ("foo", -0.1, 1.5, float("nan"), [0.5])),
        *({"shortlist": wrong} for wrong in (0, -1, "all")),
        {"least": -1},
    ],
)
def test_a_number_out_of_range_is_refused_by_name(model, setting):
    with pytest.raises(ConfigError, match=f"^{next(iter(setting))}="):
        model.predict(TEXTS, **setting)
