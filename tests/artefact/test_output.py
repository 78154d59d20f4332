"""Where a changed model may be written: a new or an empty place, or over an earlier model; directories and URIs."""

import shutil

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from named_model import export
from xmtc.artefact.export import load_model
from xmtc.artefact.output import check_output
from xmtc.cli import app
from xmtc.errors import ConfigError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


def rename(model, output) -> int:
    words = ["labels", "rename", str(model), "L01=first", "--output", str(output)]
    return CliRunner().invoke(app, words, catch_exceptions=False).exit_code


def test_only_a_model_is_replaced(model, tmp_path, monkeypatch):
    model, other = (
        shutil.copytree(model, tmp_path / "model"),
        shutil.copytree(model, tmp_path / "other"),
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("mine")
    mixed = shutil.copytree(model, tmp_path / "mixed")
    (mixed / "tokenizer" / "mine.txt").write_text("mine")
    monkeypatch.chdir(other / "tokenizer")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for output, words in {
        model: "is the model itself",
        model / "inner": "is inside of the model",
        model.parent: "you are in this folder",
        folder: "not an exported model",
        folder / "file": "is a file",
        mixed: "tokenizer/mine.txt is not an exported model's",
        ".": "you are in this folder",
        other: "you are in this folder",
    }.items():
        with pytest.raises(ConfigError, match=words):
            rename(model, output)
    assert {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == before
    monkeypatch.chdir(tmp_path)
    (other / "head.safetensors").write_bytes(b"damaged")
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty", model)
    rename(model, other)
    load_model(other)


def test_a_changed_model_is_published_at_a_uri(model, tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    there = MemoryFileSystem()
    for _ in range(2):
        assert rename(model, "memory://team/renamed") == 0
        assert there.isfile("/team/renamed/head.safetensors")
        assert there.isfile("/team/renamed/tokenizer/tokenizer.json")
    there.pipe("/team/renamed/notes.txt", b"mine")
    with pytest.raises(ConfigError, match=r"memory://team/renamed: .*notes\.txt"):
        rename(model, "memory://team/renamed")
    assert there.cat("/team/renamed/notes.txt") == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == [".cache"]
