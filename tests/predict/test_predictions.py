"""What a user sees of a model and of predictions: in Python, in a notebook, and as tables."""

import json
from pathlib import Path

import pandas as pd
import pytest

import xmtc
from xmtc.artefact.export import load_model
from xmtc.errors import ConfigError
from xmtc.predict.predictions import Expected, PredictedTexts, Prediction, Predictions

TEXTS = ["lawery and fishing", "steelery of hearting"]


@pytest.fixture(scope="module")
def model(whole) -> xmtc.Model:
    return xmtc.Model.from_pretrained(whole.run / "model", device="cpu")


def test_the_package_shows_what_is_public_and_nothing_else() -> None:
    assert dir(xmtc) == sorted(xmtc.__all__)
    for name in dir(xmtc):
        assert getattr(xmtc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert xmtc.nothing


def test_a_run_stands_for_its_model(whole, model: xmtc.Model) -> None:
    of_run = xmtc.Model.from_pretrained(whole.run, device="cpu")
    assert of_run.folder == model.folder == (whole.run / "model").absolute()
    assert of_run.predict(TEXTS, 2) == model.predict(TEXTS, 2)


def test_a_copy_is_the_same_model(model: xmtc.Model, tmp_path: Path) -> None:
    assert model.save(tmp_path / "copy") == tmp_path / "copy"
    assert xmtc.Model.from_pretrained(tmp_path / "copy", device="cpu").predict(
        TEXTS
    ) == model.predict(TEXTS)
    assert (tmp_path / "copy" / "smoke.json").read_bytes() == (
        model.folder / "smoke.json"
    ).read_bytes()
    model.save(tmp_path / "copy")
    (tmp_path / "copy" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"mine\.txt is not an exported model's"):
        model.save(tmp_path / "copy")
    with pytest.raises(ConfigError, match="is the model itself"):
        model.save(model.folder)


def test_a_model_without_a_folder_cannot_be_copied(
    model: xmtc.Model, tmp_path: Path
) -> None:
    bare = xmtc.Model(load_model(model.folder), model.scorer.device)
    with pytest.raises(ConfigError, match="not loaded from a folder"):
        bare.save(tmp_path / "copy")


def test_a_model_says_what_it_is(model: xmtc.Model) -> None:
    said = repr(model)
    assert said.startswith(
        f"<xmtc.Model '{model.info.name}': gives {len(model.labels)} labels; "
    )
    page = model._repr_html_()
    assert "the rule micro" in page
    assert "ndcg@5 on dev" in page
    assert f"{model.info.dev['ndcg@5']:.3f}" in page


def test_predictions_are_a_flat_table(model: xmtc.Model, tmp_path: Path) -> None:
    found = model.predict(TEXTS, top_k=3)
    assert isinstance(found, list)
    frame = found.to_pandas()
    assert list(frame.columns) == ["doc_id", "label", "name", "score", "predicted"]
    assert frame["doc_id"].tolist() == list("000111")
    assert frame["label"].tolist() == [one.label for labels in found for one in labels]
    found.to_csv(tmp_path / "found.csv")
    read = pd.read_csv(tmp_path / "found.csv", dtype={"label": str, "name": str})
    assert read["label"].tolist() == frame["label"].tolist()
    assert read["score"].tolist() == pytest.approx(frame["score"].tolist())
    assert len(model.predict([]).to_table()) == 0


def test_bars_hold_no_markup_of_labels() -> None:
    labels = [
        Prediction("<b>x", 0.75, "<script>alert(1)</script>", (), True),
        Prediction("y", 0.0, "y"),
    ]
    page = PredictedTexts([Predictions(labels, Expected(1, 1, 1))])._repr_html_()
    assert "<script>" not in page
    assert "width:75.0%" in page
    assert "0.750" in page
    assert "text 0" in page
    assert "<b>&lt;script&gt;" in Predictions(labels, Expected(1, 1, 1))._repr_html_()


def test_a_table_of_the_command_is_that_of_python(
    whole, model: xmtc.Model, xmtc, tmp_path: Path
) -> None:
    texts = [part for text in TEXTS for part in ("--text", text)]
    lines = xmtc("predict", whole.run, *texts, "--top-k", 2)
    table = xmtc(
        "predict", whole.run, *texts, "--top-k", 2, "--csv", tmp_path / "found.csv"
    )
    written = f"written: {tmp_path / 'found.csv'}\n"
    assert (lines.code, table.code, table.out) == (0, 0, written)
    shown = xmtc("predict", whole.run, *texts, "--top-k", 2, "--csv", "-")
    assert (shown.code, shown.out) == (0, (tmp_path / "found.csv").read_text())
    printed = [json.loads(line) for line in lines.out.splitlines()]
    rows = [
        (str(line["text"]), one["label"]) for line in printed for one in line["labels"]
    ]
    read = pd.read_csv(tmp_path / "found.csv", dtype=str)
    assert list(zip(read["doc_id"], read["label"], strict=True)) == rows
