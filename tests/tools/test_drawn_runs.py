"""The record of `tools/study/drawn_runs.py`, which several studies write."""

import json

import pytest

import drawn_runs


def test_a_record_is_whole_or_has_another_name(tmp_path, capsys):
    path = tmp_path / "laws.jsonl"

    def lines():
        yield {"seed": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drawn_runs.record(path, lines())
    assert not path.exists()

    drawn_runs.record(path, iter([{"seed": 1}, {"seed": 2}]))
    assert drawn_runs.read(path) == [{"seed": 1}, {"seed": 2}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["laws.jsonl"]
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"seed": 2}
