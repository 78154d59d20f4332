"""A reader that an installed package adds, from its entry point to a corpus."""

import importlib.metadata
import json
import sys
import types
from collections.abc import Iterator
from typing import Literal

import pytest
from pydantic import TypeAdapter

from corpora import QUICK, serial
from xmtc.config import members
from xmtc.config.base import config
from xmtc.config.load import load_config
from xmtc.data.config import DataConfig
from xmtc.data.prepare import prepare
from xmtc.data.readers.base import SPLITS, Document, LabelInfo, Reader, Rejected
from xmtc.errors import ConfigError

POINT = importlib.metadata.EntryPoint(
    "lines", "other_package:LinesConfig", "xmtc.readers"
)


class LinesReader(Reader):
    """Documents from the lines of a text file: `label: text`, every fourth line in dev."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fingerprint(self) -> str:
        with open(self._path) as file:
            return "lines:" + file.read()

    def provides(self) -> frozenset[str]:
        return frozenset({"train", "dev"})

    def read(self, map_unordered, progress, longest) -> Iterator[Document | Rejected]:
        with open(self._path) as file:
            for number, line in enumerate(file):
                label, _, text = line.strip().partition(": ")
                yield Document(str(number), text, (label,), SPLITS[number % 4 == 3])

    def label_info(self) -> LabelInfo:
        return LabelInfo({"a": "the first letter"})


@config
class LinesConfig:
    """Lines of a text file."""

    kind: Literal["lines"] = "lines"
    path: str
    """The file."""

    def build(self) -> LinesReader:
        return LinesReader(self.path)


@pytest.fixture
def data_config(monkeypatch):
    """`DataConfig` as in a process in which the package is installed."""
    module = types.ModuleType("other_package")
    module.__dict__["LinesConfig"] = LinesConfig
    monkeypatch.setitem(sys.modules, "other_package", module)
    monkeypatch.setattr(
        members,
        "entry_points",
        lambda group: (POINT,) if group == "xmtc.readers" else (),
    )
    family = members.FAMILIES["xmtc.readers"]
    family.__dict__.pop("installed", None)

    @config
    class Installed(DataConfig):
        """Another class than `DataConfig`, whose schema other tests may have made without the package."""

    yield Installed
    family.__dict__.pop("installed", None)


def test_an_installed_reader_makes_a_corpus(data_config, tmp_path):
    lines = "".join(f"{'abc'[i % 3]}: number {i} of some words\n" for i in range(40))
    (tmp_path / "source.txt").write_text(lines)
    given = {
        "source": {"kind": "lines", "path": str(tmp_path / "source.txt")},
        "corpus": str(tmp_path / "corpus"),
    }
    settings = TypeAdapter(data_config).validate_json(
        json.dumps(given | {"tokenizer": QUICK})
    )
    corpus = prepare(settings, None, map_unordered=serial)
    assert {name: len(corpus.split(name)) for name in corpus.splits} == {
        "train": 30,
        "dev": 10,
    }
    assert corpus.labels.labels == ["a", "b", "c"]
    assert corpus.labels.names == ["the first letter", "b", "c"]
    assert (
        prepare(settings, None, map_unordered=serial).fingerprint == corpus.fingerprint
    )


def test_its_settings_are_checked_like_any_others(data_config, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("source: {kind: lines, paht: a.txt}\ncorpus: c\n")
    with pytest.raises(ConfigError, match=r"source\.paht: .*'path'"):
        load_config(data_config, path)
