"""Seconds of stages, from made-up speeds."""

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_runs
from xmtc.estimate.probe import HeadSpeed
from xmtc.estimate.scorer_costs import FIGURES, scorer_bytes, scorer_sizes
from xmtc.estimate.seconds import Speeds
from xmtc.estimate.size import Size
from xmtc.scorers.config import WordNeighboursConfig
from xmtc.stages.table import stage_seconds

SIZE = Size(
    train=100,
    dev=20,
    test=20,
    tokens=40,
    longest=48,
    words=20,
    labels=6,
    labels_per_document=2.0,
)
SPEEDS = Speeds(
    core_s=FIGURES["core_s"],
    encode_s={48: 0.1},
    head=HeadSpeed(train_s=0.3 / 40, step_s=0.0, score_s=0.0),
    train_s={48: 0.4},
)
SCORERS = "model.scorers=[{kind: linear}, {kind: word_neighbours}, {kind: state_neighbours}, {kind: label_text}]"


def seconds(
    path: Path, *overrides: str, size: Size = SIZE, speeds: Speeds = SPEEDS
) -> dict[str, float]:
    return stage_seconds(tiny_runs.load(path, *overrides), size, speeds, 32)


def test_each_pass_of_planting_is_a_forward_pass_of_the_head(tmp_path) -> None:
    path, encoder = tiny_runs.write_config(tmp_path), tiny_runs.pretrained(tmp_path)
    parts = ("[attention, values, rows]", "[attention, rows]", "[attention]", "[rows]")
    all_of_them, without_values, epochs, rows = (
        seconds(path, *encoder, f"plant.parts={part}")["plant"] for part in parts
    )
    forward_s = 100 * 0.3 / 3
    assert all_of_them - without_values == pytest.approx(forward_s)
    assert without_values - epochs == pytest.approx(forward_s)
    assert without_values - rows == pytest.approx(2 * 100 * 0.3)
    without = seconds(path, "plant.parts=[]")
    assert "plant" not in without
    encoding_s = 120 * 0.1
    assert without["finetune"] - seconds(path)["finetune"] == pytest.approx(
        encoding_s
    ), "whichever stage comes first"


def test_trials_read_some_documents_for_each_choice(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path, plant={"tokens_per_micro_batch": 300})
    encoder = tiny_runs.pretrained(tmp_path)
    without, few, more = (
        seconds(path, *encoder, f"plant.choose_documents={n}")["plant"]
        for n in (0, 30, 1000)
    )
    assert few - without == pytest.approx(4 * 30 * 0.3 / 3)
    assert more - without == pytest.approx(4 * 100 * 0.3 / 3), "there are 100"
    one = (*encoder, "plant.parts=[values, rows]", "plant.choose_documents=30")
    assert few - seconds(path, *one)["plant"] == pytest.approx(2 * 30 * 0.3 / 3)
    same = (*encoder, "plant.parts=[attention, values]")
    assert seconds(path, *same) == seconds(path, *same, "plant.choose_documents=0"), (
        "no rows to measure with"
    )


def test_without_a_cache_each_pass_encodes(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path, plant={"tokens_per_micro_batch": 300})
    frozen = (
        *tiny_runs.pretrained(tmp_path),
        "plant.choose_documents=30",
        "finetune.phases=[{epochs: 2}]",
    )
    cached, plant, both = (
        seconds(path, *frozen, *settings)
        for settings in (
            (),
            ("plant.cache_hidden=false",),
            ("plant.cache_hidden=false", "finetune.cache_hidden=false"),
        )
    )
    passes_s = (2 * 100 + 4 * 30) * 0.1
    assert plant["plant"] - cached["plant"] == pytest.approx(passes_s)
    assert both["plant"] - cached["plant"] == pytest.approx(passes_s - 120 * 0.1), (
        "nothing is cached"
    )
    assert both["finetune"] - cached["finetune"] == pytest.approx(2 * 120 * 0.1)


def test_an_encoder_that_trains_encodes_dev_after_every_epoch_and_for_evaluation(
    tmp_path,
) -> None:
    path = tiny_runs.write_config(tmp_path)
    frozen, trained = (
        seconds(path, f"finetune.phases=[{{epochs: 2, encoder_layers: {n}}}]")
        for n in (0, -1)
    )
    assert trained["finetune"] - frozen["finetune"] == pytest.approx(
        2 * (100 * 0.4 + 20 * 0.1)
    )
    assert trained["evaluate"] - frozen["evaluate"] == pytest.approx(20 * 0.1)
    states = seconds(path, "model.scorers=[{kind: state_neighbours}]")
    assert states["refit"] == pytest.approx(FIGURES["stage"] + 100 * 0.1)


def test_training_on_spans_takes_the_time_of_spans(tmp_path) -> None:
    path, trains = (
        tiny_runs.write_config(tmp_path),
        "finetune.phases=[{epochs: 2, encoder_layers: -1}]",
    )
    speeds = replace(SPEEDS, encode_s={16: 0.03, 48: 0.1}, train_s={16: 0.12, 48: 0.4})
    whole, spans = (
        seconds(path, trains, *crop, speeds=speeds)
        for crop in ((), ("finetune.crop=16",))
    )
    assert whole["finetune"] - spans["finetune"] == pytest.approx(
        2 * 100 * (0.4 - 0.12)
    )
    assert whole["evaluate"] == spans["evaluate"]


def test_scorers_take_longer_with_more_labels_terms_and_documents(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    small, *larger = (
        seconds(path, SCORERS, size=size)["scorers"]
        for size in (
            Size(train=10_000, labels=500, words=100),
            Size(train=20_000, labels=500, words=100),
            Size(train=10_000, labels=5_000, words=100),
            Size(train=10_000, labels=500, words=200),
        )
    )
    assert all(other > small for other in larger)
    few = seconds(
        path,
        "model.scorers=[{kind: linear, most_terms: 1000}]",
        size=Size(train=10_000),
    )["scorers"]
    assert (
        few
        < seconds(path, "model.scorers=[{kind: linear}]", size=Size(train=10_000))[
            "scorers"
        ]
    )
    assert scorer_bytes(tiny_runs.load(path, SCORERS), Size(), 32) > 8 * 14_000**2
    linear = tiny_runs.load(path, "model.scorers=[{kind: linear, most_terms: 100000}]")
    few, many = (
        scorer_bytes(linear, Size(train=1_000, labels=labels), 32)
        for labels in (50, 300)
    )
    assert many - few >= 64 * 250 * Size(train=1_000).terms(100_000)


def test_a_slower_machine_takes_longer_in_proportion(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    slow = Speeds(core_s=2 * SPEEDS.core_s, encode_s=SPEEDS.encode_s, head=SPEEDS.head)
    size = Size(train=10_000, dev=0, labels=500)
    fixed = FIGURES["stage"] + 10_000 * 0.1
    one, two = (
        seconds(path, SCORERS, size=size, speeds=speeds)["scorers"] - fixed
        for speeds in (SPEEDS, slow)
    )
    assert two == pytest.approx(2 * one)


def test_every_unit_names_known_sizes() -> None:
    known = scorer_sizes(WordNeighboursConfig(), SIZE, 32, 1000).keys()
    for scorer in FIGURES["scorers"].values():
        for part in scorer.values():
            assert {name for unit in part for name in unit.split(" * ")} <= known
