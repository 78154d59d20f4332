"""Two models side by side: what flips is counted exactly, and the bound ends with exit code 1."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import xmtc as package
from score_jobs import write_rows
from trial_model import TEXTS, export
from xmtc.data.labels import LabelTable
from xmtc.desk.watch.acceptance import Annotation
from xmtc.desk.watch.diff import ModelComparison, as_share, compare_models
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate.flips import flips
from xmtc.labels.relabel import rename_labels
from xmtc.report.section import Table
from xmtc.scorers.predictions import SparsePredictions

OLD, NEW = 0.45, 0.5
DOCUMENTS = [(f"d{i}", text) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One model with two thresholds; the second calls a label otherwise."""
    folder = tmp_path_factory.mktemp("models")
    export(folder / "old")
    rename_labels(folder / "old", {"L22": "M"}, folder / "new")
    for name, threshold in (("old", OLD), ("new", NEW)):
        path = folder / name / "thresholds.json"
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"global": threshold})
        )
    return [folder / "old", folder / "new"]


def given(model: Path) -> dict[str, set[str]]:
    found = package.Model.from_pretrained(model, device="cpu").predict(
        TEXTS, 50, threshold="tuned"
    )
    return {
        doc_id: {one.label for one in best} - {"L22", "M"}
        for (doc_id, _), best in zip(DOCUMENTS, found, strict=True)
    }


def tables(found: ModelComparison) -> dict[str, Table]:
    return {part.name: part for part in found.parts if isinstance(part, Table)}


def test_flips_are_counted_by_label_bin_and_what_people_decided(
    models: list[Path],
) -> None:
    old, new = map(given, models)
    lost = [(doc_id, label) for doc_id in old for label in old[doc_id] - new[doc_id]]
    assert len(lost) > 3
    assert all(new[doc_id] <= old[doc_id] for doc_id in old)
    people = [
        Annotation(document=doc_id, labels=sorted(old[doc_id]))
        for doc_id in ("d0", "d1")
    ]
    people.append(Annotation(document="d2", labels=sorted(new["d2"])))
    found = compare_models(*models, DOCUMENTS, people)
    assert (
        "22 labels that both models know (1 only the old one, 1 only the new one)"
        in found.facts
    )
    assert found.share == pytest.approx(len(lost) / sum(map(len, old.values())))
    first, *bins = tables(found)["flips_bins"].rows
    right = sum(doc_id in ("d0", "d1") for doc_id, _ in lost)
    wrong = sum(doc_id == "d2" for doc_id, _ in lost)
    assert first[1:8] == [
        str(n) for n in (sum(map(len, old.values())), len(lost), 0, right, wrong, 0, 0)
    ]
    assert sum(int(row[2]) for row in bins) == len(lost)
    assert sum(int(row[3]) for row in tables(found)["flips_labels"].rows) == len(lost)
    assert {"differences", "flips_labels"} <= tables(found).keys()
    assert (
        "lost: people gave it"
        not in tables(compare_models(*models, DOCUMENTS, []))["flips_bins"].columns
    )
    same = compare_models(models[0], models[0], DOCUMENTS, people)
    assert (same.share, tables(same)["flips_labels"].rows) == (0, [])


def test_branches_hold_all_that_is_beneath_them() -> None:
    labels = LabelTable(
        ["a", "a1", "b", "b1"],
        ["a", "a1", "b", "b1"],
        np.array([1, 2, 3, 4]),
        [(), ("a",), (), ("b",)],
    )
    predictions = SparsePredictions(
        np.array([[1, 3]], np.int32), np.array([[0.9, 0.8]], np.float32)
    )
    before, after = (
        (predictions, np.array([[True, False]])),
        (predictions, np.array([[False, True]])),
    )
    gold = np.zeros((1, 4), np.bool_)
    gold[0, 3] = True
    found = flips(before, after, labels, ["1-5"], csr_array(gold), np.array([True]))
    assert [row[:8] for row in found["branches"]] == [
        ["a", 1, 1, 0, 0, 1, 0, 0],
        ["b", 0, 0, 1, 0, 0, 1, 0],
    ]
    assert found["all"][-1][0] == 1


def test_the_command_holds_a_bound(models: list[Path], tmp_path: Path, xmtc) -> None:
    source = write_rows(tmp_path / "a.jsonl", 8)
    columns = ("--text-column", "text", "--id", "id")
    done = xmtc(
        "diff",
        *models,
        source,
        *columns,
        "--at-most",
        "0.1%",
        "-o",
        tmp_path / "diff.html",
    )
    assert done.code == 1
    assert "flipped: " in done.out
    assert "more than --at-most 0.1%" in done.err
    assert (tmp_path / "diff_tables/flips_labels.csv").exists()
    assert xmtc("diff", *models, source, *columns, "--at-most", "1.0").code == 0


@pytest.mark.parametrize("share", ["", "2 percent", "-1%", "101%", "nan"])
def test_what_is_no_share_is_refused(share: str) -> None:
    with pytest.raises(ConfigError, match="give a share"):
        as_share(share)


def test_what_cannot_be_compared_is_named(models: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no documents"):
        compare_models(*models, [], [])
    with pytest.raises(DataError, match="document 'e' has no tokens"):
        compare_models(*models, [*DOCUMENTS, ("e", "\u200b")], [])
    with pytest.raises(DataError, match="no annotation is of a document"):
        compare_models(*models, DOCUMENTS, [Annotation(document="x", labels=[])])
    unfinished = Annotation(document="d0", labels=[], rejected=[])
    with pytest.raises(DataError, match="judges every label that the models give"):
        compare_models(*models, DOCUMENTS, [unfinished])
    rename_labels(
        models[0], {f"L{i:02d}": f"X{i}" for i in range(23)}, tmp_path / "renamed"
    )
    with pytest.raises(DataError, match="no label in common"):
        compare_models(models[0], tmp_path / "renamed", DOCUMENTS, [])
