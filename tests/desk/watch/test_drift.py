"""Drift is announced for other texts and not for more of the same; the profile holds numbers only."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tiny_runs
from xmtc.artefact.profile import FILE, Profile
from xmtc.desk.watch.drift import (
    BOUND,
    Drift,
    compare_counts,
    compare_with_profile,
    drift_parts,
    measure,
    profile_of,
)
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.predict.predictor import Model
from xmtc.predict.statistics import of_tokens, token_bits
from xmtc.report.section import Table

GERMAN = [
    "Die Quelle über Könige und Äpfel: ",
    "Ein Satz der weiteren Wörter über Zölle ",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model that reads words, with a hundred dev documents."""
    folder = tmp_path_factory.mktemp("drift")
    path = tiny_runs.write_config(folder)
    tiny_runs.write_jsonl(folder / "dev.jsonl", tiny_runs.documents(100, first=60))
    train_run(
        tiny_runs.load(
            path,
            "model.scorers=[{kind: word_neighbours}, {kind: linear}]",
            f"track.directory={folder}",
        )
    )
    return folder


def drifted(model: Path, texts: list[str]) -> dict[str, Drift]:
    loaded = Model.from_pretrained(model, device="cpu")
    profile = profile_of(loaded)
    rows = compare_with_profile(profile, measure(loaded, profile, texts), loaded)
    return {row.name: row for row in rows}


def test_other_texts_drift_and_more_of_the_same_do_not(folder: Path) -> None:
    model = folder / "tiny" / "model"
    same = drifted(model, [row["text"] for row in tiny_runs.documents(300, first=160)])
    answers = {
        "best",
        "expected_precision",
        "expected_recall",
        "expected_f1",
    }  # dev was fused by halves of a hundred
    assert {name for name, row in same.items() if row.is_beyond(BOUND)} <= answers
    other = drifted(model, [GERMAN[i % 2] * (1 + i % 3) for i in range(100)])
    found = {name for name, row in other.items() if row.is_beyond(BOUND)}
    assert {"bits", "known_words", "nearest", "expected_f1"} <= found
    assert "scripts" not in found
    assert (other["languages"].now, other["languages"].is_beyond(BOUND)) == ("de", True)
    greek = drifted(model, ["και η λέξη " * 5] * 50)
    assert (greek["scripts"].before, greek["scripts"].now) == ("Latin", "no letters")
    assert greek["scripts"].distance == 1


def test_what_dev_never_had_has_a_share_and_is_drift(folder: Path) -> None:
    loaded = Model.from_pretrained(folder / "tiny" / "model", device="cpu")
    profile = profile_of(loaded)
    new = measure(
        loaded,
        profile,
        [row["text"] for row in tiny_runs.documents(40)] + [GERMAN[1] * 2] * 60,
    )
    assert profile.kinds["languages"] == {"en": 100}, (
        "of dev, not of the 60 training documents"
    )
    profile.kinds["labels"] = {"law": 90, "fish": 10}
    new.kinds["labels"] = Counter(law=9, fish=1, steel=90)
    tables = {
        part.name: part
        for part in drift_parts(profile, new, [], BOUND, loaded)
        if isinstance(part, Table)
    }
    assert sorted(tables["drift_languages"].rows) == [
        ["de", "0.0", "60.0"],
        ["en", "100.0", "40.0"],
    ]
    assert tables["drift_labels"].rows[0] == ["steel", "0.0", "90.0"]
    found = {row.name: row for row in compare_with_profile(profile, new, loaded)}[
        "labels"
    ]
    assert (found.now, found.distance, found.is_beyond(BOUND)) == (
        "steel",
        pytest.approx(0.9),
        True,
    )
    loaded.scorer.info = replace(loaded.info, dev={})  # as after a change of labels
    assert {row.name: row for row in compare_with_profile(profile, new, loaded)}[
        "labels"
    ].distance == 0


def test_one_label_that_takes_over_is_drift_also_among_few_documents() -> None:
    values, rng = [f"label {at}" for at in range(1000)], np.random.default_rng(1)
    same = compare_counts(
        "labels",
        [3] * 1000,
        np.bincount(rng.integers(1000, size=60), minlength=1000).tolist(),
        values,
    )
    assert same.distance > 0.9, "few documents have few labels"
    assert not same.is_beyond(0.1)
    now = np.bincount(
        np.append(rng.integers(1000, size=40), np.full(20, 7)), minlength=1000
    )
    taken = compare_counts("labels", [3] * 1000, now.tolist(), values)
    assert (taken.now, taken.is_beyond(0.1)) == ("label 7", True)


def test_the_profile_is_bounded_and_has_no_text(folder: Path, monkeypatch) -> None:
    path = folder / "tiny" / "model" / FILE
    profile = Profile.load(path.parent)
    assert profile is not None
    assert {len(values) for values in profile.sample.values()} == {100}
    assert set(profile.kinds["labels"]) <= set(tiny_runs.LABELS)
    assert profile.kinds["scripts"] == {"Latin": 100}
    words = {
        word
        for row in tiny_runs.documents(200)
        for word in row["text"].split()
        if len(word) > 5
    }
    assert not any(word.encode() in path.read_bytes() for word in words)
    assert path.stat().st_size < 20_000


def test_bits_are_those_of_the_frequencies_in_training() -> None:
    bits_V = token_bits(np.array([3, 0, 0, 0]))
    assert bits_V == pytest.approx([-np.log2(4 / 7), *[np.log2(7)] * 3], rel=1e-3)
    found = of_tokens(
        Profile(bits_V, {}, {}), [np.array([0, 0]), np.array([0, 1, 2, 3])]
    )
    assert found["new_tokens"].tolist() == [0, 0.75]
    assert found["tokens"].tolist() == [2, 4]
    assert found["bits"][1] == pytest.approx(
        (-np.log2(4 / 7) + 3 * np.log2(7)) / 4, rel=1e-3
    )


def test_the_command_writes_a_page_and_numbers_and_holds_a_bound(
    folder: Path, tmp_path: Path, xmtc
) -> None:
    model = folder / "tiny" / "model"
    rows = [
        *tiny_runs.documents(200, first=300),
        *({"id": f"n{i}", "text": GERMAN[0] * 3} for i in range(30)),
    ]
    source = tiny_runs.write_jsonl(tmp_path / "new.jsonl", rows)
    places = ("--json", tmp_path / "drift.json", "-o", tmp_path / "p.html")
    done = xmtc("drift", model, source, "--at-most", "0.99", *places)
    assert done.code == 0
    assert "drift: none" in done.out
    found = json.loads((tmp_path / "drift.json").read_text())
    assert (found["documents"], found["drift"], found["changes"]["bits"]["drift"]) == (
        230,
        False,
        False,
    )
    assert "<svg" in (tmp_path / "p.html").read_text()
    assert "könige" in (tmp_path / "p_tables" / "new_words.csv").read_text()
    tiny_runs.write_jsonl(source, rows[200:])
    done = xmtc("drift", model, source, "--at-most", "30%")
    assert done.code == 1
    assert "bits" in done.out.splitlines()[-1]
    assert xmtc("drift", model, source).code == 0


def test_without_documents_or_profile_it_says_so(folder: Path) -> None:
    loaded = Model.from_pretrained(folder / "tiny" / "model", device="cpu")
    for texts in ([], ["\u200b"]):
        with pytest.raises(DataError, match="no new document has tokens"):
            measure(loaded, profile_of(loaded), texts)
    loaded.profile = None
    with pytest.raises(ConfigError, match="has no profile"):
        profile_of(loaded)
