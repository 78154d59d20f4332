"""What each scorer of a run adds, what it costs, and the configuration without those that add nothing."""

import json
import re
from dataclasses import replace

import pytest
import yaml

import tiny_runs
from xmtc.config.load import load_config
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate.bootstrap import Difference
from xmtc.pipeline import train_run
from xmtc.report.run_results import RunResults
from xmtc.report.runs import report_runs
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.ablate import Contribution, ablate, configuration_of
from xmtc.stages.ablate_table import configuration_without

SCORERS = "[{kind: linear, penalty: 0.3}, {kind: word_neighbours, neighbours: 5}, {kind: state_neighbours}]"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tiny_runs.write_config(tmp_path_factory.mktemp("ablate"))
    return train_run(tiny_runs.load(path, f"model.scorers={SCORERS}"))


def test_every_scorer_is_left_out_timed_and_added_to_the_report(run, tmp_path):
    scorers = run / "eval" / "dev" / "scorers.json"
    assert "without" not in json.loads(scorers.read_text())
    config = configuration_of(run)
    result = ablate(config, RunPaths.of(config))
    names = {contribution.name for contribution in result.contributions}
    assert names >= {"linear", "word_neighbours", "state_neighbours", "head"}
    for contribution in result.contributions:
        for metric in ("ndcg@5", "macro_f1"):
            interval = contribution.intervals[metric]
            assert interval.low <= interval.high
        timed = contribution.name in {
            "linear",
            "word_neighbours",
            "state_neighbours",
            "head",
        }
        assert (contribution.milliseconds is not None) == timed
    assert result.encoder_ms is not None
    adds = [contribution.adds["ndcg@5"] for contribution in result.contributions]
    assert adds == sorted(adds, reverse=True)
    content = json.loads(scorers.read_text())
    assert set(content["without"]) == names
    assert set(content["alone"]) == set(content["names"])
    fused = content["fused"]["ndcg@5"]
    for contribution in result.contributions:
        assert fused - content["without"][contribution.name]["ndcg@5"] == pytest.approx(
            contribution.adds["ndcg@5"]
        )
    report_runs([run], tmp_path / "report.html", "dev")
    assert "without linear" in (tmp_path / "report.html").read_text()
    assert RunResults.load(run, "dev").scorers == content


def test_the_printed_configuration_is_one_and_lacks_what_adds_nothing(run, tmp_path):
    config = configuration_of(run)
    without_head = yaml.safe_load(
        configuration_without(config, ["word_neighbours", "head"])
    )
    assert without_head["model"]["head"] == {"kind": "none"}
    text = configuration_without(config, ["word_neighbours"])
    model = yaml.safe_load(text)["model"]
    assert model == {
        "scorers": [{"kind": "linear", "penalty": 0.3}, {"kind": "state_neighbours"}]
    }
    (tmp_path / "smaller.yaml").write_text(f"base: {run / 'config.yaml'}\n{text}\n")
    smaller = load_config(RunConfig, tmp_path / "smaller.yaml")
    assert [scorer.kind for scorer in smaller.model.scorers] == [
        "linear",
        "state_neighbours",
    ]


def test_the_command_prints_a_row_for_each(run, xmtc):
    printed = xmtc("ablate", run).out
    for name in ("linear", "word_neighbours", "state_neighbours", "head"):
        assert re.search(rf"{name} .*[+-]\d\.\d\d \[", printed)
    assert "leave none out" in printed or "The configuration without:" in printed


@pytest.mark.parametrize(
    ("ndcg", "macro_f1", "nothing"),
    [
        (-0.01, -0.01, True),
        (0.001, 0.003, True),
        (0.0011, 0.0, False),
        (0.0, 0.0031, False),
    ],
)
def test_the_estimate_decides_whether_a_scorer_adds_nothing(ndcg, macro_f1, nothing):
    wide = Difference(-0.1, 0.1, 0.5)
    adds = {"ndcg@5": ndcg, "macro_f1": macro_f1}
    contribution = Contribution("linear", adds, dict.fromkeys(adds, wide), 1.0)
    assert contribution.adds_nothing == nothing


def test_what_has_nothing_to_leave_out_is_refused(run, tmp_path):
    with pytest.raises(DataError, match="no finished run there"):
        configuration_of(tmp_path)
    config = configuration_of(run)
    alone = replace(config, model=replace(config.model, scorers=()))
    with pytest.raises(ConfigError, match="a model of one scorer"):
        ablate(alone, RunPaths.of(config))
