"""Every error of the operating system and every malformed structure, at every boundary: one line, never a traceback."""

import builtins
import errno
import io
import json
import os
import shutil
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from bad_input_cases.damage import DAMAGES
from xmtc.config.load import load_config
from xmtc.data.corpus import Corpus
from xmtc.data.labels import LabelTable
from xmtc.data.tensor_files import read_object, read_tensors, write_tensors
from xmtc.desk.annotate.annotations import AnnotatedDocument, Annotations
from xmtc.desk.config import read_token
from xmtc.errors import CheckpointError, ConfigError, DataError, StorageError, XmtcError
from xmtc.files import read_json, reading, reason_of, write_text, writing
from xmtc.labels.extend import read_new_labels
from xmtc.labels.relabel import remove_labels
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.predict.predictor import Model
from xmtc.report.evidence import explain_text, write_page
from xmtc.report.run_results import RunResults
from xmtc.report.runs import evaluate_predictions
from xmtc.report.write import write_report
from xmtc.run.config import RunConfig
from xmtc.run.state import read_run
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job, read_labels, texts_to_predict
from xmtc.sweep.plan import plan
from xmtc.track.tracker import read_metrics

NUMBERS = [
    getattr(errno, name)
    for name in [
        "ENOSPC",
        "EACCES",
        "EROFS",
        "EIO",
        "ENAMETOOLONG",
        "EISDIR",
        "ENOTDIR",
        "EMFILE",
        "EDQUOT",
        "ELOOP",
        "ESTALE",
    ]
]
MALFORMED = [
    ValueError("a"),
    TypeError("a"),
    KeyError("a"),
    IndexError("a"),
    AttributeError("a"),
    OverflowError("a"),
    RecursionError("a"),
    EOFError("a"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    json.JSONDecodeError("a", "b", 0),
    pa.ArrowInvalid("a: SECRET"),
    pa.ArrowNotImplementedError("a"),
    pa.ArrowKeyError("a"),
    pa.ArrowTypeError("a"),
    pa.ArrowCapacityError("a"),
    SafetensorError("a"),
]


@given(st.sampled_from([*map(OSError, NUMBERS, map(os.strerror, NUMBERS)), *MALFORMED]))
def test_one_wrapper_turns_everything_into_one_line(error):
    for kind in (DataError, ConfigError, CheckpointError):
        words = r"^the/place: cannot be read: .+; copy or write it again$"
        with pytest.raises(kind, match=words) as caught, reading("the/place", kind):
            raise error
        assert "\n" not in str(caught.value)
        assert "SECRET" not in str(caught.value)
    with pytest.raises(ConfigError, match="mine"), reading("the/place"):
        raise ConfigError("mine")
    if isinstance(error, OSError | pa.ArrowException | SafetensorError):
        words = (
            r"^the/place: cannot be written: .+; free space or choose another place$"
        )
        with pytest.raises(StorageError, match=words), writing("the/place"):
            raise error


@given(st.text())
def test_a_reason_is_one_short_line(text):
    for error in (
        ValueError(text),
        OSError(text),
        KeyError(text),
        pa.ArrowInvalid(text),
    ):
        assert len(reason_of(error)) <= 200 + len("lacks ")
        assert len(reason_of(error).splitlines()) == 1


def test_a_reason_says_where(tmp_path: Path) -> None:
    def reason(content: bytes) -> str:
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(DataError) as caught, reading("place"):
            read_json(tmp_path / "a.json")
        return str(caught.value)

    assert "malformed JSON: Expecting value at line 2; " in reason(b'{"a":\n}')
    assert "malformed JSON: Expecting value at column 6; " in reason(b'{"a":}')
    assert "not UTF-8 in line 3 (invalid start byte); " in reason(
        b'{"a":\r\n1,\n"\xff"'
    )
    assert "not UTF-8 in line 1 (unexpected end of data); " in reason(b"\xe2")


def refusal(call, path: Path) -> str | None:
    """What a boundary says, in one line; None where nothing is wrong."""
    try:
        call(path)
    except XmtcError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def writers(whole):
    """What writes a result into a folder, by the name of the boundary."""
    torch.set_num_threads(1)
    parts = Model.from_pretrained(whole.run / "model", device="cpu")
    run, labels = (
        RunResults.load(whole.run),
        LabelTable.load(whole.run / "model" / "labels.arrow"),
    )
    ranking = TokenRanking.load(whole.run / "mig" / "ranking.safetensors")
    (whole.folder / "one.jsonl").write_text('{"text": "lawery"}\n')
    sections, predictions = (
        explain_text(parts, "lawery", [], 1),
        whole.run / "eval" / "dev" / "predictions.parquet",
    )

    def score(folder: Path) -> None:
        job = make_job(
            whole.run / "model",
            [str(whole.folder / "one.jsonl")],
            folder / "s",
            Settings(bfloat16=False, columns=text_columns(None, None)),
        )
        score_local(job, device="cpu", workers=1)

    def annotate(folder: Path) -> None:
        Annotations(folder / "a.jsonl", labels).save(
            [AnnotatedDocument("a", "text", ["law"])]
        )

    return {
        "report": lambda folder: write_report([run], folder / "r.html"),
        "page": lambda folder: write_page(
            folder / "p.html", sections, title="t", model="m"
        ),
        "labels": lambda folder: remove_labels(
            whole.run / "model", ["law"], folder / "m"
        ),
        "score": score,
        "evaluation": lambda folder: evaluate_predictions(
            predictions, whole.folder / "corpus", "dev", folder / "e", 0.5
        ),
        "ranking": lambda folder: ranking.save(folder / "ranking.safetensors"),
        "tensors": lambda folder: write_tensors(
            folder / "t.safetensors", {"a": np.zeros(1)}
        ),
        "text": lambda folder: write_text(folder / "t.txt", "a"),
        "annotations": annotate,
    }


CALLS = ["replace", "rename", "mkdir", "fsync"]
WRITERS = [
    "report",
    "page",
    "labels",
    "score",
    "evaluation",
    "ranking",
    "tensors",
    "text",
    "annotations",
]


@pytest.mark.parametrize(
    ("writer", "call", "number"),
    [
        (writer, call, number)
        for (writer, call), number in zip(
            product(WRITERS, CALLS), cycle(NUMBERS), strict=False
        )
    ],
)
def test_a_result_that_cannot_be_written(
    writers, tmp_path, monkeypatch, writer, call, number
):
    real, calls = getattr(os, call), []

    def refuse(*arguments, **options):
        place = arguments[0]
        if isinstance(place, int) or str(place).startswith(str(tmp_path)):
            calls.append(place)
            raise OSError(
                number,
                os.strerror(number),
                None if isinstance(place, int) else str(place),
            )
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, refuse)
    folder = tmp_path / "new"
    if call != "mkdir":
        folder.mkdir()
    said = refusal(writers[writer], folder)
    assert (said is None) == (calls == [])
    if said is not None:
        assert str(tmp_path) in said
        assert os.strerror(number) in said
    monkeypatch.undo()
    left = [path.name for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]
    assert left == []


def readers(whole):
    columns = text_columns(None, None)
    model = whole.run / "model"
    return {
        "documents": (
            whole.folder / "dev.jsonl",
            lambda path: list(texts_to_predict(path, columns, None)),
        ),
        "configuration": (whole.config, lambda path: load_config(RunConfig, path, [])),
        "labels": (None, lambda path: read_labels([f"@{path}"])),
        "new labels": (
            None,
            lambda path: read_new_labels(path, LabelTable.load(model / "labels.arrow")),
        ),
        "label table": (model / "labels.arrow", LabelTable.load),
        "model": (
            model / "config.json",
            lambda path: Model.from_pretrained(path.parent, device="cpu"),
        ),
        "weights": (
            model / "head.safetensors",
            lambda path: Model.from_pretrained(path.parent, device="cpu"),
        ),
        "tensors": (model / "head.safetensors", lambda path: read_tensors(path, ())),
        "json": (model / "config.json", lambda path: read_object(path, ())),
        "ranking": (whole.run / "mig" / "ranking.safetensors", TokenRanking.load),
        "corpus": (
            whole.folder / "corpus" / "manifest.json",
            lambda path: Corpus.open(path.parent),
        ),
        "run": (whole.run / "run.json", lambda path: read_run(path.parent)),
        "metrics": (whole.run / "metrics.jsonl", read_metrics),
        "results": (
            whole.run / "eval" / "dev" / "metrics.json",
            lambda path: RunResults.load(path.parents[2], "dev"),
        ),
        "grid": (None, lambda path: plan(whole.config, path, [])),
        "token": (None, read_token),
        "annotations": (
            None,
            lambda path: Annotations(path, LabelTable.load(model / "labels.arrow")),
        ),
    }


READERS = [
    "documents",
    "configuration",
    "labels",
    "new labels",
    "label table",
    "model",
    "weights",
    "tensors",
    "json",
]
READERS += [
    "ranking",
    "corpus",
    "run",
    "metrics",
    "results",
    "grid",
    "token",
    "annotations",
]


@pytest.fixture(params=READERS)
def reader(whole, tmp_path, request):
    """A boundary's file, with the folder that it lies in, and what reads it."""
    torch.set_num_threads(1)
    original, read = readers(whole)[request.param]
    if original is None:
        path = tmp_path / "given"
        path.write_text("law\n")
    elif original.is_relative_to(whole.run):
        path = shutil.copytree(whole.run, tmp_path / "run") / original.relative_to(
            whole.run
        )
    elif original.is_relative_to(whole.folder / "corpus"):
        path = shutil.copytree(original.parent, tmp_path / "corpus") / original.name
    else:
        path = Path(shutil.copy(original, tmp_path))
    return path, read


def test_a_file_of_another_structure(reader, tmp_path):
    path, read = reader
    whole = path.read_bytes()
    told = []
    for name, damage in DAMAGES.items():
        if name in ("a pipe", "a folder", "a loop of links", "missing"):
            continue
        path.write_bytes(whole)
        damage(path)
        told.append(refusal(read, path))
    assert any(one is not None for one in told)
    assert all(
        path.name in one or path.parent.name in one for one in told if one is not None
    )


@pytest.mark.parametrize("damage", ["a pipe", "a folder", "a loop of links"])
def test_something_else_than_a_file(reader, damage):
    path, read = reader
    DAMAGES[damage](path)
    assert refusal(read, path) is not None


def test_a_file_that_the_system_does_not_give(reader, monkeypatch):
    path, read = reader
    real, refused = io.open, []
    numbers = cycle(NUMBERS)

    def refuse(file, *arguments, **options):
        if str(file) == str(path):
            refused.append(next(numbers))
            raise OSError(refused[-1], os.strerror(refused[-1]), str(file))
        return real(file, *arguments, **options)

    for place in (io, builtins):
        monkeypatch.setattr(place, "open", refuse)
    for _ in NUMBERS:
        before = len(refused)
        assert refusal(read, path) is not None or len(refused) == before
