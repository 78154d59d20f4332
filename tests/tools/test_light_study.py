"""The data sets of `tools/study/light.py`."""

import argparse
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import light

KINDS = {"Book": 30, "Thesis": 12, "Report": 5}


@pytest.fixture
def arguments(tmp_path):
    """Folders with library records, most of them books."""
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    folder = tmp_path / "data" / "gnd_tib"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.table({"type": kinds, "title": [str(row) for row in range(len(kinds))]}),
        folder / "train.parquet",
    )
    return argparse.Namespace(data=tmp_path / "data", work=tmp_path / "work")


def test_balanced_set_has_equally_many_records_of_each_kind(arguments):
    path = light.source_file(light.SOURCES["gnd_type_balanced"], arguments)

    table = pq.read_table(path)
    assert Counter(table["type"].to_pylist()) == dict.fromkeys(KINDS, 5)
    titles = [int(title) for title in table["title"].to_pylist()]
    assert titles == sorted(set(titles))


def test_balanced_set_is_the_same_every_time(arguments):
    source = light.SOURCES["gnd_type_balanced"]
    first = light.source_file(source, arguments)
    before = pq.read_table(first)
    first.unlink()

    assert pq.read_table(light.source_file(source, arguments)).equals(before)


def test_other_sets_are_read_where_they_are(arguments):
    assert (
        light.source_file(light.SOURCES["gnd_type"], arguments)
        == arguments.data / "gnd_tib/train.parquet"
    )
