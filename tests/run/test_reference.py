"""The schema as a whole: shipped configurations load, fields are documented, the reference page is current."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from configuration_reference import reference, with_inherited_words
from xmtc.config.load import load_config
from xmtc.config.plain import dump_yaml
from xmtc.config.shape import Shape
from xmtc.run.config import RunConfig

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/small_encoders.md"
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert page == reference(RunConfig), "run `make docs`"


def fields(shape: Shape, path: str = "") -> Iterator[tuple[str, Shape]]:
    for key, child in shape.properties().items():
        yield f"{path}{key}", child
        for member in [*child.kinds().values(), *child.members()]:
            yield from fields(member, f"{path}{key}.")
            item = member.child(0, []) if "items" in member.schema else None
            if item:
                for alternative in [*item.kinds().values(), item]:
                    yield from fields(alternative, f"{path}{key}[].")


def test_every_field_is_documented() -> None:
    every = fields(with_inherited_words(Shape.of(RunConfig)))
    undocumented = {
        path for path, shape in every if not shape.schema.get("description")
    }
    assert {path for path in undocumented if not path.endswith(".kind")} == set()


def test_the_page_lists_alternatives_by_kind() -> None:
    page = reference(RunConfig)
    assert "; `data.source`, kind `jsonl`" in page
    assert "## `track.sinks[]`, kind `tensorboard`" in page
    assert "- `name` (text, matching" in page
    assert "- `data.source`, kind `parquet`: Parquet files" in page, "each in its words"
    assert "- `kind` (auto, linear, trees; default `auto`)" in page, (
        "kinds to choose from"
    )


@pytest.mark.parametrize("name", ["sentiment.yaml", "sentiment_minilm.yaml"])
def test_the_columns_that_are_asked_for_are_those_that_are_read(name: str) -> None:
    path = ROOT / "configs" / name
    columns = load_config(RunConfig, path).data.source.columns
    for text in (path.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")):
        assert re.findall(r"columns (\w+) and (\w+)", text) == [
            (columns.text, columns.labels)
        ]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_loads_and_survives_its_snapshot(
    path: Path, tmp_path: Path
) -> None:
    config = load_config(RunConfig, path)
    resolved = tmp_path / "config.yaml"
    resolved.write_text(dump_yaml(config), encoding="utf-8")
    assert load_config(RunConfig, resolved) == config
