"""Sweeps: which runs a grid becomes, resuming, failures that are named, the comparison."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tiny_runs import load, write_config
from xmtc.config.load import load_config, read_tree
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.run.directory import RunPaths
from xmtc.run.state import RunState
from xmtc.run.status import print_status
from xmtc.sweep.comparison import (
    CellResult,
    student_interval,
    train_seconds,
    write_comparison,
)
from xmtc.sweep.config import SweepConfig
from xmtc.sweep.plan import combinations, make_runs, plan
from xmtc.sweep.sweep import sweep

CONFIGS = Path(__file__).parents[2] / "configs"
GRIDS = sorted((CONFIGS / "sweeps").glob("*.yaml"))
HEAD = {"kind": "flat"}
MODEL = {
    "encoder": {"kind": "bag", "embedding": {"width": 8}},
    "head": HEAD,
    "overlap": 4,
}
PHASE = {"epochs": 1, "encoder_layers": -1}


@pytest.fixture
def config(tmp_path):
    return write_config(
        tmp_path,
        model=MODEL,
        plant={"parts": []},
        finetune={
            "batch_size": 12,
            "phases": [PHASE],
            "loss": {"kind": "binary_cross_entropy"},
        },
    )


def write_grid(folder, **content):
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def no_training(config):
    raise AssertionError(f"{config.name} must not be trained")


def values_of_cells(folder, **content):
    """The values of each cell that a grid file becomes."""
    path = write_grid(folder, **content)
    nodes_by_cell = combinations(
        load_config(SweepConfig, path), read_tree(SweepConfig, path).value
    )
    return [
        {key: node.plain() for key, node in nodes.items()} for nodes in nodes_by_cell
    ]


def test_combinations_are_the_product(tmp_path):
    assert values_of_cells(tmp_path, grid={"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_drawn_values_lie_in_their_ranges_and_stay_when_draws_and_keys_are_added(
    tmp_path,
):
    draw = {"rate": {"loguniform": [1e-5, 1e-1]}, "dropout": {"uniform": [0.2, 0.6]}}
    cells = values_of_cells(tmp_path, draw=draw, draws=200)
    rates = [cell["rate"] for cell in cells]
    assert 1e-5 <= min(rates) < 1e-4 < 1e-2 < max(rates) <= 1e-1
    assert 80 < sum(rate < 1e-3 for rate in rates) < 120, (
        "half of them lie below the middle of the logarithms"
    )
    assert all(0.2 <= cell["dropout"] <= 0.6 for cell in cells)
    assert values_of_cells(tmp_path, draw=draw, draws=3) == cells[:3]
    more = {**draw, "pooling": {"choice": ["mean", {"kind": "max"}]}}
    with_choice = values_of_cells(tmp_path, draw=more, draws=200)
    assert [cell["rate"] for cell in with_choice] == rates
    assert {str(cell["pooling"]) for cell in with_choice} == {"mean", "{'kind': 'max'}"}


def test_every_combination_of_the_grid_is_tried_with_each_draw(tmp_path):
    cells = values_of_cells(
        tmp_path, grid={"a": [1, 2]}, draw={"b": {"uniform": [0, 1]}}, draws=3
    )
    assert [cell["a"] for cell in cells] == [1, 1, 1, 2, 2, 2]
    assert [cell["b"] for cell in cells[:3]] == [cell["b"] for cell in cells[3:]]


def test_seeds_of_a_cell_share_its_draws_and_a_choice_that_is_drawn_twice_is_trained_once(
    config, tmp_path
):
    draw = {"finetune.batch_size": {"choice": [8, 9]}}
    sweep_plan = plan(
        config, write_grid(tmp_path, draw=draw, draws=10, seeds=[1, 2]), []
    )
    assert sorted(cell.values["finetune.batch_size"] for cell in sweep_plan.cells) == [
        8,
        9,
    ]
    for cell in sweep_plan.cells:
        assert {run.finetune.batch_size for run in cell.runs} == {
            cell.values["finetune.batch_size"]
        }


def test_intervals_are_students():
    low, high = student_interval([0.8, 0.9, 1.0])
    assert (low + high) / 2 == pytest.approx(0.9)
    assert high - low == pytest.approx(2 * 4.3027 * 0.1 / 3**0.5, rel=1e-4)
    assert student_interval([0.8]) is None


def test_a_grid_is_trained_compared_and_gone_on_with(config, tmp_path, capsys):
    grid = {"model.head.pooling.kind": ["mean", "max"]}
    path = write_grid(tmp_path, grid=grid, seeds=[1, 2], metrics=["micro_f1", "p@1"])
    broken = []

    def train(run):
        if run.model.head.pooling.kind == "max" and run.seed == 2 and not broken:
            broken.append(run.name)
            raise DataError("the disk is on fire")
        return train_run(run)

    assert sweep(config, path, [], train) == 1
    output = tmp_path / "runs" / "tiny-sweep"
    assert (
        'Failed: model.head.pooling.kind="max", seed 2: DataError: the disk is on fire'
        in (output / "sweep.md").read_text()
    )
    assert (output / "sweep.md").read_text() in capsys.readouterr().out
    intervals = {
        len(cell["runs"]): cell["ci95"]
        for cell in json.loads((output / "sweep.json").read_text())["cells"]
    }
    assert intervals[1] == {"micro_f1": [], "p@1": []}, (
        "of one run of two there is none over seeds"
    )
    assert intervals[2]["p@1"]

    done = {
        run: (run / "model" / "config.json").stat().st_mtime_ns
        for run in (tmp_path / "runs").glob("tiny-*-s?")
    }
    assert len(done) == 3
    assert sweep(config, path, [], train) == 0
    assert all(
        (run / "model" / "config.json").stat().st_mtime_ns == time
        for run, time in done.items()
    )

    cells = json.loads((output / "sweep.json").read_text())["cells"]
    assert [len(cell["runs"]) for cell in cells] == [2, 2]
    for cell in cells:
        found = [
            json.loads((Path(run) / "eval/dev/metrics.json").read_text())
            for run in cell["runs"]
        ]
        assert cell["metrics"]["p@1"] == pytest.approx(
            (found[0]["p@1"] + found[1]["p@1"]) / 2
        )
        assert cell["train_s"] > 0
    assert cells[0]["metrics"]["micro_f1"] >= cells[1]["metrics"]["micro_f1"]
    assert {cell["values"]["model.head.pooling.kind"] for cell in cells} == {
        "mean",
        "max",
    }
    assert (
        Path(cells[0]["runs"][0]).name
        in (output / "sweep.md").read_text().splitlines()[2]
    )
    assert (output / "report.html").stat().st_size > 10_000


def test_nothing_is_trained_when_a_cell_is_wrong(config, tmp_path):
    for grid, words in (
        (
            {"finetune.batch_size": [16, "many"]},
            r'with finetune.batch_size="many": .*grid.yaml:4: finetune.batch_size: ',
        ),
        (
            {"model.encoder.kid": ["bag"]},
            r"grid.yaml:3: model.encoder.kid: unknown key",
        ),
        (
            {"finetune.metric": ["accuracy"]},
            r'grid.yaml: with finetune.metric="accuracy": .*tiny.yaml',
        ),
        (
            {"data.tokenizer": [None]},
            "with data.tokenizer=null: data.tokenizer: this model has no tokenizer; set",
        ),
        ({"model.overlap": [4, 2000]}, "with model.overlap=2000: model.overlap: 2000"),
        (
            {"model.head.dropout": [0, 0.0]},
            "dropout=0 and model.head.dropout=0.0 are the same configuration",
        ),
        ({"data.max_length": [8, 8]}, "are the same configuration"),
    ):
        with pytest.raises(ConfigError, match=words):
            sweep(config, write_grid(tmp_path, grid=grid), [], no_training)


def test_nothing_is_trained_or_compared_when_a_run_that_is_there_is_of_another_configuration(
    config, tmp_path
):
    grid = write_grid(tmp_path, grid={"finetune.batch_size": [8]})
    sweep_plan = plan(config, grid, [])
    (cell,) = sweep_plan.cells
    there = RunPaths.of(cell.runs[0])
    RunState.open(there.root, cell.runs[0]).close()
    there.planted.parent.mkdir(parents=True)
    there.planted.write_text("trained")
    comparison = (
        RunPaths.of(replace(sweep_plan.base, name=f"{sweep_plan.base.name}-sweep")).root
        / "sweep.md"
    )
    comparison.parent.mkdir(parents=True)
    comparison.write_text("as it was")
    with pytest.raises(ConfigError, match=r"-s1: (?s:.*)weight_decay"):
        sweep(config, grid, ["finetune.optimizer.weight_decay=0.3"], no_training)
    assert comparison.read_text() == "as it was"


def test_a_grid_that_is_wrong_is_refused(config, tmp_path):
    for content, words in (
        ({"grid": {"seed": [1, 2]}}, "seed is set by the sweep"),
        ({"grid": {"data.corpus": ["elsewhere"]}}, "data.corpus is set by the sweep"),
        (
            {"grid": {"track": [{"directory": "elsewhere"}]}},
            "track holds track.directory, which the sweep sets",
        ),
        ({"grid": {"data": [{"max_length": 8}]}}, "data holds data.corpus"),
        ({"grid": {"finetune.batch_size": []}}, "has no values"),
        ({"grid": {}}, "grid or draw"),
        ({"draw": {"seed": {"choice": [1, 2]}}}, "draw: seed is set by the sweep"),
        (
            {"draw": {"finetune.batch_size": {}}},
            "exactly one of choice, uniform and loguniform",
        ),
        (
            {"draw": {"finetune.batch_size": {"choice": [], "uniform": [0, 1]}}},
            "exactly one of",
        ),
        ({"draw": {"finetune.batch_size": {"choice": []}}}, "choice: has no values"),
        (
            {"draw": {"finetune.batch_size": {"uniform": [1, 1]}}},
            "must be less than the second",
        ),
        (
            {"draw": {"finetune.batch_size": {"loguniform": [0, 1]}}},
            "must be greater than 0",
        ),
        ({"draw": {"seeds": {"normal": [0, 1]}}}, "normal: unknown key"),
        ({"grid": {"a": [1]}, "draw": {"a": {"choice": [1]}}}, "a is in the grid too"),
        ({"grid": {"finetune.batch_size": [8]}, "seed": 1}, "seed"),
        (
            {"grid": {"finetune.batch_size": [8]}, "seeds": [1, 2, 1]},
            r"seeds: \[1, 2, 1\]: one is given twice",
        ),
        (
            {"grid": {"finetune.batch_size": [8]}, "seeds": [-1]},
            r"grid.yaml:5: seeds.0: -1: must be greater",
        ),
        (
            {"grid": {"finetune.batch_size": [8]}, "metrics": ["micro_fl"]},
            r"grid.yaml:5: .*did you mean 'micro_f1'",
        ),
        (
            {"grid": {"finetune.batch_size": [8]}, "metrics": ["micro_f1", "docs"]},
            "'docs': no metric that compares",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            sweep(config, write_grid(tmp_path, **content), [], no_training)


def test_an_override_of_what_the_grid_sets_is_refused(config, tmp_path):
    grid = write_grid(tmp_path, grid={"finetune.batch_size": [8, 9]})
    for override in ("seed=5", "finetune.batch_size=7"):
        with pytest.raises(ConfigError, match=f"{override}: .*grid.yaml sets this key"):
            sweep(config, grid, [override], no_training)


def test_the_calibration_error_is_best_where_it_is_lowest(tmp_path):
    rows = [
        CellResult({"a": n}, [], {"ece": ece} if ece else {}, {"ece": []}, None, {})
        for n, ece in ((1, 0.3), (2, None), (3, 0.1))
    ]
    write_comparison(
        tmp_path, rows, SweepConfig(grid={"a": [1, 2, 3]}, metrics=["ece"])
    )
    cells = json.loads((tmp_path / "sweep.json").read_text())["cells"]
    assert [cell["values"]["a"] for cell in cells] == [3, 1, 2]


def test_a_value_with_a_bar_stays_in_its_cell(tmp_path):
    key = "data.source.columns.label_separator"
    write_comparison(
        tmp_path,
        [CellResult({key: "|"}, [], {}, {}, None, {})],
        SweepConfig(grid={key: ["|"]}),
    )
    columns, _, row = (tmp_path / "sweep.md").read_text().splitlines()[:3]
    assert len(re.findall(r"(?<!\\)\|", row)) == columns.count("|")


@pytest.mark.parametrize(
    "full", [RuntimeError, MemoryError], ids=["of PyTorch", "of NumPy"]
)
def test_cells_that_prepare_differently_have_separate_corpora(
    config, tmp_path, capsys, full
):
    corpora = []

    def train(run):
        corpora.append(run.data.corpus)
        raise full("out of memory")

    grid = write_grid(tmp_path, grid={"data.max_length": [8, 16]})
    assert sweep(config, grid, [], train) == 2
    assert capsys.readouterr().err.count("Traceback") == 2
    assert len(set(corpora)) == 2


def test_encoders_with_other_tokenizers_have_separate_corpora_beside_the_common_one(
    config, tmp_path
):
    names = ["packaged:all-MiniLM-L6-v2", str(tmp_path / "other")]
    models = [
        {"kind": "hugging_face", "name": name, "from_config": {"model_type": "bert"}}
        for name in names
    ]
    settings = (
        "data.tokenizer=null",
        f"model.encoder={json.dumps(models[0])}",
        f"data.corpus={tmp_path}/corpus/",
    )
    grid = write_grid(tmp_path, grid={"model.encoder.name": names})
    base = load(config, *settings)
    tree = read_tree(SweepConfig, grid).value["grid"].value["model.encoder.name"].value
    first, second = (
        make_runs(config, settings, base, {"model.encoder.name": name}, [1])
        for name in tree
    )
    assert first[0].data.corpus == f"{tmp_path}/corpus/"
    assert re.fullmatch(rf"{tmp_path}/corpus-\w{{8}}", second[0].data.corpus)


def test_a_section_and_a_key_of_it_hold_both_in_any_order(config, tmp_path):
    pooling = {"kind": "attention", "heads": 4}
    grid = {
        "model.head.pooling.heads": [2],
        "model.head": [{"kind": "flat", "pooling": pooling}],
    }
    for keys in (list(grid), list(reversed(grid))):
        path = tmp_path / "grid.yaml"
        path.write_text(
            yaml.safe_dump({"grid": {key: grid[key] for key in keys}}, sort_keys=False)
        )
        assert [
            run.model.head.pooling.heads for run in plan(config, path, []).runs
        ] == [2]


def test_training_seconds_are_those_of_all_sessions(tmp_path, capsys):
    paths = RunPaths.of(load(write_config(tmp_path)))
    assert train_seconds(paths) is None
    paths.root.mkdir(parents=True)
    stage = {
        "state": "done",
        "started_at": "2026-01-01T00:00:00+00:00",
        "finished_at": "2026-01-01T00:00:30+00:00",
    }
    session = {
        "format": 1,
        "config_hash": "",
        "created_at": "2026-01-01T00:00:00+00:00",
        "updated_at": "2026-01-01T00:00:30+00:00",
        "stages": {"scorers": stage},
    }
    (paths.root / "run.json").write_text(json.dumps(session))
    assert train_seconds(paths) is None, "scorers without a head"
    (paths.root / "run.json").write_text(
        json.dumps(session | {"stages": {"finetune": stage}})
    )
    assert train_seconds(paths) == 30, (
        "of the one session, with what comes before the first step"
    )
    ends = (("plant", 9, 50.0), ("finetune", 1, 51.0), ("finetune", 80, 170.0))
    lines = [
        json.dumps({"stage": name, "step": step, "time_s": end})
        for name, step, end in ends
    ]
    (paths.root / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert train_seconds(paths) == 120, "the last of several sessions took 30"
    print_status(paths.root)
    assert "finetune  done in 2:00\n" in capsys.readouterr().out


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_shipped_grid_fits_the_configuration_that_its_command_names(path):
    found = re.search(
        rf"xmtc sweep (configs/\w+\.yaml) configs/sweeps/{path.name}\n",
        path.read_text(),
    )
    assert found, "no command in its first lines"
    sweep_plan = plan(CONFIGS.parent / found[1], path, [])
    assert len(sweep_plan.cells) > 1
    assert len({run.name for run in sweep_plan.runs}) == len(sweep_plan.cells) * len(
        sweep_plan.settings.seeds
    )
