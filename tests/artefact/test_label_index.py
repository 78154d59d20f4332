"""The index of labels in a model directory: what it ranks by, what keeps it true to the tables, and damage."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from named_model import LABELS, export
from xmtc.artefact.export import ModelParts, export_model, load_model
from xmtc.errors import CheckpointError
from xmtc.labels.extend import add_labels
from xmtc.labels.relabel import merge_labels, remove_labels, rename_labels
from xmtc.mining.config import IndexConfig
from xmtc.mining.index import (
    INDEX,
    NOTES,
    IndexRecall,
    LabelIndex,
    LabelVectors,
    query_vectors,
)
from xmtc.models.calibration import Calibration
from xmtc.models.heads.config import FlatConfig, NoHeadConfig
from xmtc.predict.predictor import Model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return export(tmp_path_factory.mktemp("run") / "model", FlatConfig())


def assert_index_fits(folder: Path) -> ModelParts:
    """The index finds the best labels by the logits of the head that is there."""
    parts = load_model(folder)
    assert parts.index is not None
    hidden, mask = (
        torch.randn(3, 5, parts.classifier.encoder.width),
        torch.ones(3, 5, dtype=torch.bool),
    )
    logits = parts.classifier.calibrated(parts.classifier.head(hidden, mask))
    found = parts.index.search(
        query_vectors(parts.classifier.head.document_vectors(hidden, mask)), 7
    )
    assert torch.equal(torch.from_numpy(found), logits.topk(7).indices)
    return parts


def test_a_calibrated_flat_heads_index_ranks_as_the_model_does(tmp_path):
    parts = load_model(export(tmp_path / "model", FlatConfig(), calibrated=False))
    torch.manual_seed(1)
    parts.classifier.calibration = Calibration(
        torch.rand(LABELS) + 0.5, torch.randn(LABELS)
    )
    export_model(tmp_path / "model", parts, dict(parts.classifier.named_parameters()))
    assert_index_fits(tmp_path / "model")


def test_changed_labels_change_the_index(model, tmp_path):
    remove_labels(model, ["L00", "L05"], tmp_path / "less")
    assert len(assert_index_fits(tmp_path / "less").labels) == LABELS - 2
    merge_labels(model, {"L01": ["L02", "L03"]}, tmp_path / "merged")
    assert len(assert_index_fits(tmp_path / "merged").labels) == LABELS - 2
    (tmp_path / "new.jsonl").write_text(json.dumps({"label": "new", "name": "eel"}))
    add_labels(model, tmp_path / "new.jsonl", tmp_path / "more")
    assert len(assert_index_fits(tmp_path / "more").labels) == LABELS + 1
    rename_labels(model, {"L00": "zero"}, tmp_path / "renamed")
    assert (tmp_path / "renamed" / INDEX).read_bytes() == (model / INDEX).read_bytes()


def test_a_change_of_labels_keeps_the_kind_and_forgets_the_recall(model, tmp_path):
    parts, settings = load_model(model), IndexConfig(kind="ivf", probes=4)
    index = LabelIndex(
        LabelVectors.of(parts.classifier.head, parts.classifier.calibration), settings
    )
    index.recall = IndexRecall(share=0.9, best=5, shortlist=9, documents=3)
    export_model(
        tmp_path / "model",
        parts,
        dict(parts.classifier.named_parameters()),
        index=index,
    )
    remove_labels(tmp_path / "model", ["L00"], tmp_path / "less")
    for name, labels, recall in (
        ("model", LABELS, index.recall),
        ("less", LABELS - 1, None),
    ):
        opened = LabelIndex.open(tmp_path / name, labels)
        assert opened is not None
        assert (opened.config, opened.recall) == (settings, recall)


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_an_opened_index_finds_what_the_built_one_does(kind, tmp_path):
    generator = np.random.default_rng(0)
    vectors, queries = (
        generator.normal(size=(2000, 8)).astype("f4"),
        generator.normal(size=(9, 8)).astype("f4"),
    )
    built = LabelIndex(vectors, IndexConfig(kind=kind, probes=3))
    built.save(tmp_path)
    opened = LabelIndex.open(tmp_path, 2000)
    assert opened is not None
    assert (opened.labels, opened.width) == (2000, 8)
    for fill in (False, True):
        assert np.array_equal(
            opened.search(queries, 400, fill=fill),
            built.search(queries, 400, fill=fill),
        )


def test_without_a_calibration_the_vectors_are_the_heads():
    head = FlatConfig().build(4, 3)
    rows = torch.cat([head.weights, head.bias[:, None]], 1).detach().numpy()
    assert np.array_equal(LabelVectors.of(head)[:], rows)


@pytest.mark.parametrize(
    ("head", "task"), [(FlatConfig(), "single_label"), (NoHeadConfig(), "multi_label")]
)
def test_models_without_a_head_have_no_index(head, task):
    from xmtc.artefact.info import ModelInfo
    from xmtc.models.config import ModelConfig
    from xmtc.scorers.config import LinearConfig

    model = ModelConfig(head=head, scorers=() if head.scores else (LinearConfig(),))
    assert not ModelInfo(
        name="x", model=model, vocab_size=9, max_length=9, task=task
    ).has_index


@pytest.mark.parametrize("name", [INDEX, NOTES])
def test_a_damaged_index_is_named(model, tmp_path, name):
    (tmp_path / INDEX).write_bytes((model / INDEX).read_bytes())
    (tmp_path / NOTES).write_bytes((model / NOTES).read_bytes())
    (tmp_path / name).write_text("{}x")
    with pytest.raises(CheckpointError, match=name):
        LabelIndex.open(tmp_path, LABELS)


def test_an_index_of_another_number_of_labels_is_named(model):
    with pytest.raises(CheckpointError, match=f"{LABELS} labels, .* 4"):
        LabelIndex.open(model, 4)


@pytest.mark.parametrize(
    ("share", "warns"), [(0.036, True), (0.97, False), (None, False)]
)
def test_a_shortlist_that_misses_the_best_labels_gets_a_warning(share, warns, caplog):
    recall = (
        None
        if share is None
        else IndexRecall(share=share, best=5, shortlist=500, documents=50)
    )
    index = LabelIndex(np.eye(4, dtype="f4"), IndexConfig())
    index.recall = recall
    index.warn_of_misses()
    assert (
        "a shortlist of 500 labels holds 4% of the best 5 (50 documents of dev)"
        in caplog.text
    ) is warns


def test_a_loaded_model_warns_once(tmp_path, caplog):
    parts = load_model(export(tmp_path / "model", FlatConfig()))
    assert parts.index is not None
    parts.index.recall = IndexRecall(share=0.1, best=5, shortlist=4, documents=50)
    export_model(
        tmp_path / "model",
        parts,
        dict(parts.classifier.named_parameters()),
        index=parts.index,
    )
    loaded = Model.from_pretrained(tmp_path / "model")
    for _ in range(2):
        loaded.predict(["word1 word2"], shortlist=4)
    assert caplog.text.count("a shortlist of 4 labels holds 10% of the best 5") == 1
