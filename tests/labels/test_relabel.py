"""Labels removed, renamed and merged in an exported model: nothing changes for the others."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import xmtc
from named_model import LABELS, TEXTS, export
from xmtc.artefact.export import export_model, load_model
from xmtc.cli import main
from xmtc.data.labels import LabelTable
from xmtc.errors import CheckpointError, ConfigError, DataError
from xmtc.labels.relabel import (
    merge_labels,
    merged_hierarchy,
    remove_labels,
    rename_labels,
    with_parents,
)
from xmtc.models.calibration import Calibration
from xmtc.models.heads.config import FlatConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


def scores(folder, texts=TEXTS) -> list[dict[str, float]]:
    found = xmtc.Model.from_pretrained(folder, device="cpu").predict(
        texts, top_k=LABELS
    )
    return [{one.label: one.score for one in row} for row in found]


def assert_same(before, after, rtol=1e-5) -> None:
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(
            [other[label] for label in one if label in other],
            [one[label] for label in one if label in other],
            rtol=rtol,
        )


def run(monkeypatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["xmtc", "labels", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_removed_labels_are_gone_and_the_others_score_the_same(
    model, tmp_path, monkeypatch, capsys
):
    before_files = {
        path: path.read_bytes() for path in model.rglob("*") if path.is_file()
    }
    (tmp_path / "gone.txt").write_text("L03\nL29\n")
    assert (
        run(
            monkeypatch,
            "remove",
            model,
            "L00",
            f"@{tmp_path}/gone.txt",
            "-o",
            tmp_path / "less",
        )
        == 0
    )
    assert "labels removed: 3, left: 27" in capsys.readouterr().err
    assert {
        path: path.read_bytes() for path in model.rglob("*") if path.is_file()
    } == before_files
    after = scores(tmp_path / "less")
    assert all(len(row) == 27 and not {"L00", "L03", "L29"} & set(row) for row in after)
    assert_same(scores(model), after)
    parts, old = load_model(tmp_path / "less"), load_model(model)
    assert parts.decision.thresholds_L is not None
    assert old.decision.thresholds_L is not None
    assert parts.decision.thresholds_L[0] == old.decision.thresholds_L[1]
    assert parts.labels.train_counts.tolist() == [
        i for i in range(LABELS) if i not in (0, 3, 29)
    ]
    assert (
        "labels removed: 3. The model has 27 labels."
        in (tmp_path / "less/README.md").read_text()
    )


def test_renamed_labels_score_the_same_under_their_new_names(
    model, tmp_path, monkeypatch
):
    (tmp_path / "names.tsv").write_text("L04\ta=b, c\n")
    swap = ("L01=L02", "L02=L01")
    assert (
        run(
            monkeypatch,
            "rename",
            model,
            "L00=zero",
            *swap,
            f"@{tmp_path}/names.tsv",
            "-o",
            tmp_path / "new",
        )
        == 0
    )
    names = {"L00": "zero", "L01": "L02", "L02": "L01", "L04": "a=b, c"}
    expected = [
        {names.get(label, label): score for label, score in row.items()}
        for row in scores(model)
    ]
    assert scores(tmp_path / "new") == expected
    assert load_model(tmp_path / "new").labels.names[0] == "fish a"


def test_a_model_that_nobody_may_write_gives_one_that_its_owner_may(model, tmp_path):
    shared = shutil.copytree(model, tmp_path / "shared")
    places = [shared, *shared.rglob("*")]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    rename_labels(shared, {"L00": "zero"}, tmp_path / "new")
    new = tmp_path / "new"
    names = {path.relative_to(shared) for path in places[1:]}
    assert {path.relative_to(new) for path in new.rglob("*")} == names | {
        Path("smoke.json")
    }
    assert all(
        place.stat().st_mode & 0o200 for place in (new, *new.rglob("*"))
    )  # root may write what it may not


def test_labels_with_blanks_around_them_are_the_same_in_the_hierarchy(model, tmp_path):
    parts = load_model(model)
    parents = [("L04",) if label == "L05" else () for label in parts.labels.labels]
    parts = replace(parts, labels=replace(parts.labels, parents=parents))
    above = export_model(
        tmp_path / "model", parts, dict(parts.classifier.named_parameters())
    )
    rename_labels(above, {" L04 ": "zero"}, tmp_path / "renamed")
    merge_labels(above, {"L01\n": [" L04"]}, tmp_path / "merged")
    for folder, parent in (("renamed", "zero"), ("merged", "L01")):
        table = load_model(tmp_path / folder).labels
        assert table.parents is not None
        assert table.parents[table.index("L05")] == (parent,)


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_merged_head_is_exact_for_synonyms_used_at_random(tmp_path, calibrated):
    """Two labels with the same row, whose logits differ by the logarithm of how often each is used."""
    counts = np.where(np.arange(LABELS) == 1, 30, 10)
    parts = load_model(
        export(tmp_path / "model", FlatConfig(), calibrated=False, counts=counts)
    )
    tables = parts.classifier.head.label_tables()
    with torch.no_grad():
        for table in tables.values():
            table[1] = table[2]
        meaning = float(tables["bias"][2])
        tables["bias"][1] += np.log(0.75)
        tables["bias"][2] += np.log(0.25)
    if calibrated:
        parts.classifier.calibration = Calibration(
            torch.ones(LABELS), torch.zeros(LABELS)
        )
    export_model(tmp_path / "model", parts, dict(parts.classifier.named_parameters()))
    done = merge_labels(tmp_path / "model", {"L01": ["L02"]}, tmp_path / "merged")
    assert (done.changed, done.labels) == (1, LABELS - 1)
    assert any("rows of the head are averaged" in note for note in done.notes)
    assert_same(
        [
            {k: v for k, v in row.items() if k != "L01"}
            for row in scores(tmp_path / "model")
        ],
        scores(tmp_path / "merged"),
    )
    after = load_model(tmp_path / "merged")
    tables = load_file(tmp_path / "merged/head.safetensors")
    bias = tables["bias"][1] + (
        after.classifier.calibration.offset_L[1] if after.classifier.calibration else 0
    )
    assert float(bias) == pytest.approx(meaning, abs=1e-6)
    assert after.labels.train_counts[1] == 40


def test_the_hierarchy_follows(tmp_path):
    tops = [("a",), ("b",), ("top", "a"), ("c",)]
    table = LabelTable(["b", "c", "d", "e"], list("bcde"), np.ones(4, np.int64), tops)
    merged = merged_hierarchy(table, {"d": ["c"]})
    assert merged.parents is not None
    assert merged.parents[2:] == [("top", "a", "b"), ("d",)]
    with pytest.raises(DataError, match="'c'"):
        merged_hierarchy(table, {"b": ["e"]})
    less = with_parents(table, {"c": ("b",), "b": ("a",)})
    assert less.parents == [("a",), ("a",), ("top", "a"), ("a",)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("remove", "L99"), "no label 'L99' among the model's 30 labels"),
        (("remove", *(f"L{i:02d}" for i in range(LABELS))), "at least 1 must remain"),
        (("rename", "L99=x"), "no label 'L99'"),
        (("rename", "L01=L02"), "'L02' already exists"),
        (("rename", "L01=top"), "'top' already exists"),
        (("rename", "L01=x", "L02=x"), "'x' already exists"),
        (("rename", "L01=x", "L01=y"), "renamed twice"),
        (("rename", "L01"), "not OLD=NEW"),
        (("rename", "L01=x=y"), "that contain ="),
        (("rename", "L01="), "not OLD=NEW"),
        (("merge", "L01=L02,"), "not OLD=NEW"),
        (("merge", "L01=L99"), "no label 'L99'"),
        (("merge", "L01=L02", "L03=L02"), "'L02' is in two groups"),
        (("merge", "L01=L01"), "'L01' is in two groups"),
        (("merge", "@none.tsv"), "none.tsv"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    model, tmp_path, monkeypatch, capsys, words, message
):
    command, *rest = words
    assert run(monkeypatch, command, model, *rest, "-o", tmp_path / "out") == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_models_that_will_not_do(model, tmp_path):
    single = export(
        tmp_path / "single", FlatConfig(), task="single_label", calibrated=False
    )
    with pytest.raises(ConfigError, match="a single-label model cannot merge labels"):
        merge_labels(single, {"L01": ["L02"]}, tmp_path / "out")
    assert remove_labels(single, ["L01"], tmp_path / "less").notes
    before, after = scores(single)[0], scores(tmp_path / "less")[0]
    left = 1 - before.pop("L01")
    assert_same(
        [{label: score / left for label, score in before.items()}], [after], rtol=1e-4
    )
    damaged = shutil.copytree(model, tmp_path / "damaged")
    (damaged / "head.safetensors").write_bytes(b"x")
    for change in (
        lambda: remove_labels(damaged, ["L01"], tmp_path / "out"),
        lambda: rename_labels(damaged, {"L01": "x"}, tmp_path / "out"),
        lambda: merge_labels(damaged, {"L01": ["L02"]}, tmp_path / "out"),
    ):
        with pytest.raises(CheckpointError, match="checksum differs"):
            change()
    assert not (tmp_path / "out").exists()
