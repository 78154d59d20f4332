"""Files of strangers: a few variants of each format, and that the tool sees what is read wrongly."""

import random
from pathlib import Path

import pytest

import formats
from format_cases.made import make_case


@pytest.mark.parametrize(
    "name",
    [
        "doccano, JSONL",
        "lists in cells",
        "indicator columns",
        "saved dataset",
        "svmlight",
    ],
)
def test_a_format_is_read_or_refused_as_it_should_be(name: str) -> None:
    ends = [end for end, _ in formats.run(2, seed=1, names=[name])[name]]
    assert set(ends) <= {"right", "advised"}


def test_other_labels_and_missing_documents_are_noticed() -> None:
    case = make_case(random.Random(0), phrases=True)
    read = dict(case.expected)
    assert formats.difference(case, read) is None
    text = next(iter(read))
    assert "instead of" in str(
        formats.difference(case, read | {text: frozenset(["other"])})
    )
    assert "missing" in str(
        formats.difference(case, {key: read[key] for key in list(read)[1:]})
    )
    assert "too many" in str(formats.difference(case, read | {"one more": frozenset()}))


def test_options_of_a_refusal_are_its_advice() -> None:
    assert formats.advice("name it with --labels topics, or --text 'a b'") == [
        ["--labels", "topics", "--text", "a b"],
        ["--labels", "topics"],
        ["--text", "a b"],
    ]
    assert formats.advice("name it with --labels") == []


def test_every_format_writes_something(tmp_path: Path) -> None:
    for name, made_by in formats.FORMATS.items():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        case = make_case(
            random.Random(name), phrases=made_by.phrases, single=made_by.single
        )
        assert made_by.write(case, folder).exists(), name
        assert len(case.expected) > 30, name
