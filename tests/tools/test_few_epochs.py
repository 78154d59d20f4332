"""The tools of the study of few epochs on a tiny configuration: resumable, and verdicts follow from what is written."""

import json
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import few_epochs
import few_epochs_settings
import few_epochs_tables
from few_epochs_settings import (
    BLOCKS,
    CHOSEN,
    SEEDS,
    SETTINGS,
    START_PARTS,
    Cell,
    run_config,
    runs_of,
)
from few_epochs_tables import Bar
from tiny_runs import load, write_config
from xmtc.planting.plan import planting_plan

SCORERS = [{"kind": "linear", "penalty": 0.1}, {"kind": "word_neighbours"}]
CELLS = [
    Cell("minilm-laws", "random", 1),
    Cell("minilm-laws", "rows", 1),
    Cell("minilm-laws", CHOSEN, 1),
    Cell("minilm-laws", "random", 2),
]


@pytest.fixture
def shared(tmp_path):
    """A tiny configuration with one phase."""
    return load(
        write_config(tmp_path),
        f"model.scorers={json.dumps(SCORERS)}",
        "finetune.phases=[{epochs: 1}]",
        "plant.method=closed_form",
        "plant.epochs=null",
        "name=minilm-laws",
    )


def test_finished_runs_are_skipped_and_verdicts_follow_from_lines(
    tmp_path, shared, monkeypatch, capsys
):
    monkeypatch.setattr(few_epochs, "setting_config", lambda *_: shared)
    out = tmp_path / "out"
    out.mkdir()
    arguments = SimpleNamespace(out=out, data=tmp_path, weights=tmp_path, work=tmp_path)
    study = few_epochs.Study(arguments)
    for cell in CELLS:
        study.run(cell, 1)

    written = (out / "minilm-laws.jsonl").read_text(encoding="utf-8")
    (choice,) = few_epochs.lines_of(out / "minilm-laws.choices.jsonl")
    assert choice["start"] in set(START_PARTS) - {"random"}
    starts = [
        (line["start"], line["epochs"])
        for line in map(json.loads, written.splitlines())
    ]
    expected = [("random", 1), ("rows", 1), (choice["start"], 1), ("random", 2)]
    assert starts == list(dict.fromkeys(expected)), (
        "what dev chose is run under its own name, once"
    )
    for cell in CELLS:
        few_epochs.Study(arguments).run(cell, 1)
    assert (out / "minilm-laws.jsonl").read_text(encoding="utf-8") == written

    results = few_epochs_tables.read_results(out, "minilm-laws", resamples=30)
    assert results.seeds("chosen, 1") == [1]
    picture = tmp_path / "picture.svg"
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "few_epochs_tables.py",
            str(out),
            "--resamples",
            "20",
            "--picture",
            str(picture),
        ],
    )
    pytest.importorskip("matplotlib")
    few_epochs_tables.main()
    printed = capsys.readouterr().out
    assert "| P1 | MiniLM, 2,000 laws | 1 |" in printed
    assert "not finished" in printed
    assert "not run" in printed
    assert picture.read_text(encoding="utf-8").count("<svg") == 1


@pytest.mark.parametrize("start", [*START_PARTS, CHOSEN])
def test_a_start_plants_its_parts(shared, start):
    config = run_config(shared, start, 4, 2)

    plan = planting_plan(config.model, config.plant)
    assert plan.parts == set(START_PARTS["everything" if start == CHOSEN else start])
    assert bool(plan.trial_documents) == (start == CHOSEN)
    setting = SETTINGS["minilm-laws"]
    rate = setting.random_rate if start == "random" else setting.planted_rate
    assert config.finetune.optimizer.learning_rate == rate
    assert [phase.epochs for phase in config.finetune.phases] == [4]
    assert config.seed == 2


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_trains_its_backbone_from_the_first_step(tmp_path, name):
    (tmp_path / "eurlex57k").mkdir()
    pq.write_table(
        pa.table({"doc_id": ["a", "b"]}), tmp_path / "eurlex57k" / "dev.parquet"
    )

    config = few_epochs_settings.setting_config(
        name, tmp_path, tmp_path / "weights", tmp_path / "work"
    )

    assert [phase.encoder_layers for phase in config.finetune.phases] == [-1]
    assert config.data.limit.train == SETTINGS[name].documents


def test_blocks_hold_every_run_once():
    runs = list(runs_of(list(BLOCKS)))

    assert len(set(runs)) == len(runs)
    assert {seed for _, seed in runs} == set(SEEDS)
    assert {cell.setting for cell, _ in runs} == set(SETTINGS)


@pytest.mark.parametrize(
    ("interval", "reached"),
    [((9.0, 1.0, 12.0), True), ((9.0, -1.0, 12.0), False), ((7.0, 5.0, 9.0), False)],
)
def test_a_bar_needs_its_mean_and_an_interval_above_nought(interval, reached):
    assert Bar("macro_f1", 8).is_reached(interval) == reached
