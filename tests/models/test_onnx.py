"""ONNX exports: the logits of PyTorch for every encoder and head, windows included; folders, engines, bad input."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from tiny import tiny
from transformers import AutoTokenizer
from typer.testing import CliRunner

import xmtc
from xmtc.artefact.export import ModelParts, export_model, load_model
from xmtc.artefact.info import ModelInfo
from xmtc.artefact.onnx_export import TOLERANCE, export_onnx, is_onnx, load_any, random_batch
from xmtc.artefact.output import GRAPH, check_output
from xmtc.cli import app
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import resolve_pretrained
from xmtc.data.progress import Silent
from xmtc.errors import CheckpointError, ConfigError
from xmtc.models.calibration import Calibration
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, MaxPoolConfig
from xmtc.models.encoders.light_config import (
    BagConfig,
    BiGRUConfig,
    CNNConfig,
    EmbeddingConfig,
    LSTMConfig,
    MultilevelConfig,
    SelfAttentionConfig,
)
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.models.poolings.config import AttentionPoolingConfig, FirstPoolingConfig, MaxPoolingConfig
from xmtc.score.command import make_job, require_onnx
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VOCAB, LABELS = 30522, 7
SMALL = EmbeddingConfig(width=16)
BERT = HuggingFaceConfig(from_config=tiny("bert"), window=24)
ATTENTION = LabelAttentionConfig(width=16, heads=2)
POOLED = FlatConfig(pooling=AttentionPoolingConfig())
CASES = {
    "self_attention": (SelfAttentionConfig(embedding=SMALL, width=16, window=24), POOLED),
    "self_attention, labels": (SelfAttentionConfig(embedding=SMALL, width=16, window=24), ATTENTION),
    "multilevel": (MultilevelConfig(embedding=SMALL, width=16, local_radius=3, window=24), POOLED),
    "depthwise": (MultilevelConfig(embedding=SMALL, width=16, transform="depthwise", window=24), FlatConfig()),
    "bigru, labels": (BiGRUConfig(embedding=SMALL, hidden=8, window=24), ATTENTION),
    "sparsemax, labels": (BagConfig(embedding=SMALL, window=24), replace(ATTENTION, normaliser="sparsemax")),
    "entmax, labels": (BagConfig(embedding=SMALL, window=24), replace(ATTENTION, normaliser="entmax15")),
    "lstm": (LSTMConfig(embedding=SMALL, hidden=8, window=24), FlatConfig(pooling=MaxPoolingConfig())),
    "cnn": (CNNConfig(embedding=SMALL, filters=5, window=24), FlatConfig(pooling=MaxPoolingConfig())),
    "bag": (BagConfig(embedding=SMALL, window=24), FlatConfig()),
    "bert, labels": (BERT, ATTENTION),
    "llama, labels": (HuggingFaceConfig(from_config=tiny("llama"), window=24), ATTENTION),
    "maxpool": (MaxPoolConfig(base=BERT, variant="cls_max", last_layers=2), FlatConfig(pooling=FirstPoolingConfig())),
}
TEXTS = ["Acute kidney failure.", "A regulation on spirits " * 12, "kidney"]


def export(directory, encoder, head, *, calibration=None):
    torch.manual_seed(0)
    config = ModelConfig(encoder=encoder, head=head, overlap=4)
    classifier = config.build(VOCAB, LABELS)
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    classifier.calibration = calibration
    names = [f"L{i}" for i in range(LABELS)]
    info = ModelInfo(name="trial", model=config, vocab_size=VOCAB, max_length=90)
    tokenizer = AutoTokenizer.from_pretrained(resolve_pretrained("packaged:all-MiniLM-L6-v2"))
    table = LabelTable(names, names, np.arange(LABELS))
    parts = ModelParts(info, classifier, tokenizer, table)
    return export_model(directory, parts, dict(classifier.named_parameters()))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model and its graph."""
    folder = tmp_path_factory.mktemp("multilevel")
    model = export(folder / "model", *CASES["multilevel"])
    export_onnx(model, folder / "onnx", int8=False)
    return model, folder / "onnx"


@pytest.mark.parametrize("name", CASES)
def test_the_graph_gives_the_logits_of_pytorch_for_windows_too(tmp_path, name):
    model = export(tmp_path / "model", *CASES[name])
    assert export_onnx(model, tmp_path / "onnx", int8=False) < TOLERANCE
    parts, graph = load_model(model), load_any(tmp_path / "onnx")
    batch = random_batch(parts, [50, 3, 24, 77])
    assert batch.position_BT is not None
    with torch.no_grad():
        expected = parts.classifier(batch)
    assert expected.std() > 0.01
    torch.testing.assert_close(graph.classifier(batch), expected, atol=1e-4, rtol=1e-4)


def test_attention_looks_for_no_nan_in_its_scores(exported):
    import onnx

    operators = {node.op_type for node in onnx.load(exported[1] / "model.onnx").graph.node}
    assert "Softmax" in operators
    assert "IsNaN" not in operators


def test_predictions_are_those_of_the_model(exported):
    model, onnx = (xmtc.Model.from_pretrained(path, device="cpu") for path in exported)
    for ours, theirs in zip(model.predict(TEXTS), onnx.predict(TEXTS), strict=True):
        assert [one.label for one in ours] == [one.label for one in theirs]
        np.testing.assert_allclose([one.score for one in ours], [one.score for one in theirs], atol=1e-4)


def test_calibration_joins_the_graph_as_it_joins_the_head(tmp_path):
    torch.manual_seed(0)
    calibration = Calibration(torch.rand(LABELS) + 0.5, torch.randn(LABELS))
    plain = export(tmp_path / "plain", *CASES["cnn"])
    path = export(tmp_path / "model", *CASES["cnn"], calibration=calibration)
    assert export_onnx(path, tmp_path / "onnx", int8=False) < TOLERANCE
    models = [xmtc.Model.from_pretrained(one, device="cpu") for one in (plain, path, tmp_path / "onnx")]
    scores = [{p.label: p.score for p in model.predict(TEXTS[:1], top_k=LABELS)[0]} for model in models]
    assert scores[2] == pytest.approx(scores[1], abs=1e-4)
    assert max(abs(scores[0][label] - scores[1][label]) for label in scores[0]) > 0.05


def test_a_corpus_is_scored_alike(exported, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": f"d{i}", "text": TEXTS[i % 3]}) + "\n" for i in range(7)))
    settings = Settings(top_k=3, bfloat16=False, columns=text_columns(["text"], "id"))
    tables = []
    for name, model in zip(("torch", "onnx"), exported, strict=True):
        score_local(make_job(model, [str(source)], tmp_path / name, settings), Silent(), device="cpu", workers=2)
        tables.append(pq.read_table(tmp_path / name / "part-00000-00000.parquet").to_pydict())
    assert tables[0]["labels"] == tables[1]["labels"]
    np.testing.assert_allclose(np.array(tables[0]["scores"]), np.array(tables[1]["scores"]), atol=1e-4)


def test_int8_is_smaller_and_near(exported, tmp_path):
    model, onnx = exported
    assert 0 < export_onnx(model, tmp_path / "int8", int8=True) < 0.1
    assert (tmp_path / "int8" / "model.onnx").stat().st_size < (onnx / "model.onnx").stat().st_size / 2
    assert sorted(p.name for p in (tmp_path / "int8").iterdir()) == sorted(p.name for p in onnx.iterdir())


def test_what_a_graph_cannot_do_is_refused(exported, tmp_path):
    model, onnx = exported
    with pytest.raises(ConfigError, match="this is already an ONNX model"):
        export_onnx(onnx, tmp_path / "again", int8=False)
    with pytest.raises(CheckpointError, match=r"not an ONNX model; make one with `xmtc export"):
        require_onnx(model)
    with pytest.raises(ConfigError, match="evidence"):
        xmtc.Model.from_pretrained(onnx).predict(TEXTS, evidence=True)
    attending = export(tmp_path / "maxpool", MaxPoolConfig(base=BERT, last_layers=2), FlatConfig())
    with pytest.raises(ConfigError, match="maxpool's additional attention cannot be exported to ONNX"):
        export_onnx(attending, tmp_path / "never", int8=False)
    assert not (tmp_path / "never").exists()
    (tmp_path / "in.jsonl").write_text('{"text": "kidney"}\n')
    for option, value in {"shortlist": 2, "evidence": True}.items():
        job = make_job(
            onnx, [str(tmp_path / "in.jsonl")], tmp_path / option, Settings(**{option: value}, bfloat16=False)
        )
        with pytest.raises(ConfigError, match=f"--{option}: an ONNX model only gives the score of every label"):
            score_local(job, Silent(), device="cpu")
    with pytest.raises(ConfigError, match="a shortlist needs label tables, which ONNX models do not contain"):
        xmtc.Model.from_pretrained(onnx).predict(TEXTS, shortlist=2)


def test_only_an_onnx_model_is_replaced(exported, tmp_path, monkeypatch):
    model, onnx = shutil.copytree(exported[0], tmp_path / "model"), shutil.copytree(exported[1], tmp_path / "onnx")
    other = shutil.copytree(model, tmp_path / "other")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("mine")
    mixed = shutil.copytree(onnx, tmp_path / "mixed")
    (mixed / "tokenizer" / "mine.txt").write_text("mine")
    monkeypatch.chdir(onnx / "tokenizer")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for output, words in {
        model: "is the model itself",
        model / "onnx": "is inside of the model",
        other: "not an exported model with a model.onnx",
        model.parent: "you are in this folder",
        folder: "not an exported model with a model",
        folder / "file": "is a file",
        mixed: "has tokenizer/mine.txt, which is not part of the model",
        ".": "you are in this folder",
        onnx: "you are in this folder",
    }.items():
        with pytest.raises(ConfigError, match=words):
            CliRunner().invoke(app, ["export", str(model), "--onnx", str(output)], catch_exceptions=False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    monkeypatch.chdir(tmp_path)
    (onnx / "model.onnx").write_bytes(b"damaged")
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty", model, GRAPH)
    export_onnx(model, onnx, int8=False)
    load_any(onnx)


def test_an_onnx_model_is_published_at_a_uri(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    there, command = MemoryFileSystem(), ["export", str(exported[0]), "--onnx", "memory://team/onnx"]
    for _ in range(2):
        assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
        assert there.isfile("/team/onnx/model.onnx")
        assert there.isfile("/team/onnx/tokenizer/tokenizer.json")
    there.pipe("/team/onnx/notes.txt", b"mine")
    with pytest.raises(ConfigError, match=r"memory://team/onnx: has notes.txt, which is not part of the model"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert there.cat("/team/onnx/notes.txt") == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == [".cache"]


def test_a_graph_that_does_not_run_is_refused_with_a_reason(exported, tmp_path, monkeypatch):
    """As one that has the example's sizes in it."""
    monkeypatch.setattr("xmtc.artefact.onnx_graph._SHAPES", {})
    with pytest.raises(
        CheckpointError, match=r"the ONNX graph fails for input_ids \[1, 3\], .*use the model that it was made"
    ):
        export_onnx(exported[0], tmp_path / "never", int8=False)
    assert not (tmp_path / "never").exists()


def test_a_damaged_graph_is_named(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "onnx")
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"no graph")
    assert is_onnx(tmp_path / "onnx")
    with pytest.raises(CheckpointError, match=r"model.onnx: damaged \(checksum differs\)"):
        load_any(tmp_path / "onnx")
