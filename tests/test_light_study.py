"""The data sets of `tools/light_study.py`."""

import argparse
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TOOLS = str(Path(__file__).parents[1] / "tools")
KINDS = {"Book": 30, "Thesis": 12, "Report": 5}


@pytest.fixture
def light_study(monkeypatch):
    """The tool as a module."""
    monkeypatch.syspath_prepend(TOOLS)
    import light_study

    return light_study


@pytest.fixture
def arguments(tmp_path):
    """Folders with library records, most of them books."""
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    folder = tmp_path / "data" / "gnd_tib"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.table({"type": kinds, "title": [str(row) for row in range(len(kinds))]}), folder / "train.parquet"
    )
    return argparse.Namespace(data=tmp_path / "data", work=tmp_path / "work")


def test_balanced_set_has_equally_many_records_of_each_kind(light_study, arguments):
    path = light_study.source_file(light_study.SOURCES["gnd_type_balanced"], arguments)

    table = pq.read_table(path)
    assert Counter(table["type"].to_pylist()) == dict.fromkeys(KINDS, 5)
    titles = [int(title) for title in table["title"].to_pylist()]
    assert titles == sorted(set(titles))


def test_balanced_set_is_the_same_every_time(light_study, arguments):
    source = light_study.SOURCES["gnd_type_balanced"]
    first = light_study.source_file(source, arguments)
    before = pq.read_table(first)
    first.unlink()

    assert pq.read_table(light_study.source_file(source, arguments)).equals(before)


def test_other_sets_are_read_where_they_are(light_study, arguments):
    assert (
        light_study.source_file(light_study.SOURCES["gnd_type"], arguments) == arguments.data / "gnd_tib/train.parquet"
    )
