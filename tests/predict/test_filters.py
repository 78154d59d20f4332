"""Filters: the labels that are left keep their scores and their order, in every way of predicting."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xmtc
from trial_model import LABELS, TEXTS, export
from xmtc.cli import main
from xmtc.data.labels import LabelTable
from xmtc.errors import ConfigError, DataError
from xmtc.models.heads.config import FlatConfig
from xmtc.predict.filters import LabelFilter
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job

NAMES = [f"L{i:02d}" for i in range(LABELS)]
TREE = {
    "animal": (),
    "fish": ("animal",),
    "cod": ("fish",),
    "law": (),
    "branch:law": ("code",),
    "loop": ("loop",),
}
TABLE = LabelTable(
    list(TREE), list(TREE), np.ones(len(TREE), np.int64), list(TREE.values())
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture(scope="module")
def models(folder, tmp_path_factory):
    """A model of either task."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("more")
    single = export(place / "single", FlatConfig(), "single_label")
    return {
        path.name: xmtc.Model.from_pretrained(path, device="cpu")
        for path in (folder, single)
    }


@pytest.fixture(scope="module")
def everything(models):
    return {name: model.predict(TEXTS, top_k=LABELS) for name, model in models.items()}


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    include=st.none() | st.sets(st.sampled_from(NAMES), min_size=1),
    exclude=st.sets(st.sampled_from(NAMES), max_size=LABELS - 1),
)
@pytest.mark.parametrize("name", ["model", "single"])
def test_the_labels_that_are_left_keep_score_and_order(
    models, everything, name, include, exclude
):
    left = (set(NAMES) if include is None else include) - exclude
    chosen = None if include is None else sorted(include)
    if not left:
        with pytest.raises(DataError, match="leave no label"):
            models[name].predict(TEXTS, include=chosen, exclude=sorted(exclude))
        return
    found = models[name].predict(
        TEXTS, top_k=7, include=chosen, exclude=sorted(exclude)
    )
    for one, whole in zip(found, everything[name], strict=True):
        expected = [prediction for prediction in whole if prediction.label in left][:7]
        assert [p.label for p in one] == [p.label for p in expected]
        np.testing.assert_allclose(
            [p.score for p in one], [p.score for p in expected], atol=1e-6
        )


def test_evidence_goes_with_its_label(models):
    (found,) = models["model"].predict(TEXTS[:1], evidence=True, include=["L03", "L17"])
    (whole,) = models["model"].predict(TEXTS[:1], top_k=LABELS, evidence=True)
    words = {p.label: [word.text for word in p.evidence] for p in whole}
    assert {p.label: [word.text for word in p.evidence] for p in found} == {
        name: words[name] for name in ("L03", "L17")
    }


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["branch:animal"], [], ["animal", "fish", "cod"]),
        (["branch:animal"], ["branch:fish"], ["animal"]),
        (["branch:code"], [], ["branch:law"]),  # a parent that is no label
        (["branch:law"], [], ["branch:law"]),  # a label of that name comes first
        (["branch:loop", "law"], [], ["law", "loop"]),
        (None, ["branch:animal", "law"], ["branch:law", "loop"]),
    ],
)
def test_branches(include, exclude, expected):
    found = LabelFilter.of(TABLE, include, exclude)
    assert found is not None
    assert [TABLE.labels[at] for at in found.allowed] == expected


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"include": ["cat"]}, "include: no label 'cat' among the model's 6 labels"),
        (
            {"exclude": ["branch:cat"]},
            "exclude: branch:cat: neither a label of the model nor a parent of one",
        ),
        ({"include": []}, "leave no label"),
    ],
)
def test_unknown_labels_are_named(filters, words):
    with pytest.raises(DataError, match=words):
        LabelFilter.of(TABLE, **filters)


def test_what_a_filter_cannot_be(models):
    with pytest.raises(DataError, match="branch:L01"):
        models["model"].predict(TEXTS, include=["branch:L01"])
    assert {p.label for p in models["model"].predict(TEXTS[:1], include="L01")[0]} == {
        "L01"
    }
    with pytest.raises(ConfigError, match="so shortlist has no effect"):
        models["model"].predict(TEXTS, include=["L01"], shortlist=5)
    best = [
        p.label for p in models["model"].predict(TEXTS[:1], shortlist=20, top_k=3)[0]
    ]
    rest = [
        p.label
        for p in models["model"].predict(
            TEXTS[:1], shortlist=20, top_k=2, exclude=best[:1]
        )[0]
    ]
    assert rest == best[1:]


@pytest.mark.parametrize("name", ["model", "single"])
def test_a_job_scores_what_the_model_predicts(models, folder, tmp_path, name):
    place = (
        folder
        if name == "model"
        else export(tmp_path / "single", FlatConfig(), "single_label")
    )
    pd.DataFrame({"id": range(len(TEXTS)), "text": TEXTS}).to_parquet(
        tmp_path / "in.parquet"
    )
    columns = text_columns(["text"], "id")
    chosen = Settings(
        top_k=9,
        bfloat16=False,
        include=tuple(NAMES[:6]),
        exclude=("L02",),
        evidence=True,
        columns=columns,
    )
    score_local(
        make_job(place, [str(tmp_path / "in.parquet")], tmp_path / "out", chosen),
        device="cpu",
    )
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    expected = models[name].predict(
        TEXTS, top_k=9, include=NAMES[:6], exclude=["L02"], evidence=True
    )
    for row, predictions in zip(
        pd.read_parquet(part).itertuples(), expected, strict=True
    ):
        assert list(row.labels) == [p.label for p in predictions]
        np.testing.assert_allclose(
            row.scores, [p.score for p in predictions], atol=1e-5
        )
        words = [[word["text"] for word in best] for best in row.evidence]
        assert words == [[word.text for word in p.evidence] for p in predictions]


def test_the_shell_takes_labels_and_files(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "some.txt").write_text("L01\nL02\n\nL03\n")
    call = [
        "predict",
        str(folder),
        "--text",
        TEXTS[0],
        "--include",
        f"@{tmp_path}/some.txt",
        "--exclude",
        "L02",
    ]
    monkeypatch.setattr(sys, "argv", ["xmtc", *call])
    with pytest.raises(SystemExit):
        main()
    assert {row["label"] for row in json.loads(capsys.readouterr().out)["labels"]} == {
        "L01",
        "L03",
    }
    monkeypatch.setattr(sys, "argv", ["xmtc", *call, "--include", "L77"])
    with pytest.raises(SystemExit):
        main()
    assert (
        "include: no label 'L77' among the model's 23 labels" in capsys.readouterr().err
    )
