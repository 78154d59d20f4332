"""Exported models: round trips of every kind of weights, what is in the folder, damage of every kind."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from tiny import tiny, train_only, whole_documents
from xmtc.artefact.export import ModelParts, export_model, load_model
from xmtc.artefact.info import ModelInfo
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import resolve_pretrained
from xmtc.distributed.row_shards import RowShard
from xmtc.errors import CheckpointError, StorageError
from xmtc.files import file_sha256
from xmtc.fusion.decision import Decision
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import (
    HuggingFaceConfig,
    LoraConfig,
    MaxPoolConfig,
)
from xmtc.models.encoders.light_config import BagConfig
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.models.poolings.config import PlainPoolingConfig

VOCAB = 30522
LABELS = LabelTable(
    ["a", "b", "c"], ["Letter A", "", "Letter C"], np.array([5, 2, 1]), None
)
LORA = LoraConfig(r=2, dropout=0.0)


def model_config(encoder: HuggingFaceConfig, head=None) -> ModelConfig:
    return ModelConfig(
        encoder=encoder, head=head or LabelAttentionConfig(width=16, heads=2), overlap=4
    )


def trained_classifier(config: ModelConfig, groups: list[str] | None = None):
    """A classifier whose parameters in `groups` (all, when None) were moved, and those parameters."""
    torch.manual_seed(0)
    classifier = config.build(VOCAB, len(LABELS.labels)).eval()
    train_only(classifier, groups or list(classifier.parameter_groups()))
    trained = {name: p for name, p in classifier.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for parameter in trained.values():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return classifier, trained


def export(
    directory,
    config: ModelConfig,
    groups: list[str] | None = None,
    task="multi_label",
    metrics=None,
    **kwargs,
):
    classifier, trained = trained_classifier(config, groups)
    info = ModelInfo(
        name="trial",
        model=config,
        vocab_size=VOCAB,
        max_length=64,
        task=task,
        corpus="abc",
    )
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    export_model(
        directory,
        ModelParts(info, classifier, tokenizer, LABELS, **kwargs),
        trained,
        metrics,
    )
    return classifier


def assert_same(classifier, loaded):
    batch = whole_documents([12, 7])
    with torch.no_grad():
        torch.testing.assert_close(loaded(batch), classifier.eval()(batch))


HEAD_ONLY = ["head.attention", "head.classifier"]
CASES = {
    "random": (
        model_config(HuggingFaceConfig(from_config=tiny("bert"))),
        None,
        {"encoder"},
    ),
    "random with adapters": (
        model_config(HuggingFaceConfig(from_config=tiny("llama"), lora=LORA)),
        None,
        {"encoder", "adapter"},
    ),
    "random decoder made bidirectional": (
        model_config(
            HuggingFaceConfig(from_config=tiny("mistral"), bidirectional=True),
            FlatConfig(),
        ),
        None,
        {"encoder"},
    ),
    "pretrained, frozen": (model_config(HuggingFaceConfig()), HEAD_ONLY, set()),
    "pretrained with adapters": (
        model_config(HuggingFaceConfig(lora=LORA)),
        None,
        {"adapter"},
    ),
    "pretrained, top layer trained": (
        model_config(HuggingFaceConfig()),
        [*HEAD_ONLY, "encoder.6"],
        {"encoder"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_gives_the_same_logits(tmp_path, case):
    config, groups, folders = CASES[case]
    classifier = export(tmp_path / "model", config, groups)
    parts = load_model(tmp_path / "model")
    assert not parts.classifier.training
    assert_same(classifier, parts.classifier)
    present = {path.name for path in (tmp_path / "model").iterdir()}
    files = {
        "config.json",
        "head.safetensors",
        "labels.arrow",
        "thresholds.json",
        "README.md",
        "tokenizer",
    }
    files |= {"labels.faiss", "index.json"}
    assert present == files | folders
    assert parts.info.model == config
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


@pytest.fixture
def float64_by_default():
    """A program that computes in float64, and uses a model beside it."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "case", ["pretrained with adapters", "random decoder made bidirectional", "maxpool"]
)
def test_the_default_type_of_a_program_changes_no_model(
    tmp_path, case, float64_by_default
):
    maxpool = model_config(
        MaxPoolConfig(base=HuggingFaceConfig(from_config=tiny("bert")), last_layers=2)
    )
    config, groups = (maxpool, None) if case == "maxpool" else CASES[case][:2]
    classifier = export(tmp_path / "model", config, groups)
    parts = load_model(tmp_path / "model")
    assert {parameter.dtype for parameter in parts.classifier.parameters()} == {
        torch.float32
    }
    assert_same(classifier, parts.classifier)
    assert torch.get_default_dtype() == torch.float64


def test_no_file_is_a_pickle_or_code(tmp_path):
    export(tmp_path / "model", CASES["random with adapters"][0])
    suffixes = {
        path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()
    }
    assert suffixes <= {".json", ".safetensors", ".arrow", ".faiss", ".md", ".txt"}


def test_the_trained_encoder_loads_with_transformers_alone(tmp_path):
    config = CASES["pretrained, top layer trained"][0]
    classifier = export(tmp_path / "model", config, [*HEAD_ONLY, "encoder.6"])
    plain = AutoModel.from_pretrained(
        tmp_path / "model" / "encoder", add_pooling_layer=False
    ).eval()
    batch = whole_documents([9])
    with torch.no_grad():
        expected = classifier.encoder(batch.input_ids_WU, batch.attention_mask_WU)
        torch.testing.assert_close(
            plain(batch.input_ids_WU).last_hidden_state, expected
        )


def test_a_model_that_is_replaced_while_it_is_read_is_not_called_damaged(
    tmp_path, monkeypatch
):
    for name, width in (("model", 16), ("other", 8)):
        export(
            tmp_path / name,
            ModelConfig(
                encoder=BagConfig(), head=LabelAttentionConfig(width=width, heads=2)
            ),
        )

    def replace_it(directory):
        shutil.rmtree(directory)
        (tmp_path / "other").rename(directory)

    monkeypatch.setattr("xmtc.artefact.export.read_outcomes", replace_it)
    with pytest.raises(
        CheckpointError,
        match="model: replaced by another model meanwhile; run the command again",
    ):
        load_model(tmp_path / "model")


def test_gathered_tensors_stand_for_the_shards_here(tmp_path):
    """Under ZeRO-3 a rank's parameters are empty, and the strategy hands the whole tensors over."""
    config = CASES["pretrained with adapters"][0]
    classifier, trained = trained_classifier(config)
    whole = {name: tensor.detach().clone() for name, tensor in trained.items()}
    expected = classifier(whole_documents([5]))
    for parameter in trained.values():
        parameter.data = torch.empty(0)
    info = ModelInfo(name="trial", model=config, vocab_size=VOCAB, max_length=64)
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    parts = ModelParts(info, classifier, tokenizer, LABELS)
    export_model(tmp_path / "model", parts, whole)
    torch.testing.assert_close(
        load_model(tmp_path / "model").classifier(whole_documents([5])), expected
    )
    del whole["head.queries"]
    with pytest.raises(CheckpointError, match=r"head\.queries"):
        export_model(tmp_path / "other", parts, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_card_counts_the_label_rows_of_all_workers(tmp_path):
    config = ModelConfig(encoder=BagConfig(), head=FlatConfig())
    classifier = config.build(VOCAB, 4000)
    trained = {
        name: parameter.detach().clone()
        for name, parameter in classifier.named_parameters()
    }
    for name, table in classifier.head.label_tables().items():
        setattr(
            classifier.head,
            name,
            RowShard.placed(table.detach()[:1000].clone(), 0, 4000),
        )
    info = ModelInfo(name="trial", model=config, vocab_size=VOCAB, max_length=64)
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    labels = LabelTable(
        [f"label {i}" for i in range(4000)], [""] * 4000, np.ones(4000, np.int64), None
    )
    export_model(
        tmp_path / "m", ModelParts(info, classifier, tokenizer, labels), trained
    )
    numbers = sum(tensor.numel() for tensor in trained.values())
    assert (
        f" {numbers / 1e6:.1f} million parameters"
        in (tmp_path / "m" / "README.md").read_text()
    )


def test_labels_thresholds_and_card_come_along(tmp_path):
    thresholds_L = np.array([0.1, 0.25, 0.5], np.float32)
    metrics = {"dev": {"p@1": 0.5, "macro_f1": 0.123}}
    config = CASES["pretrained, frozen"][0]
    export(
        tmp_path / "m",
        config,
        HEAD_ONLY,
        decision=Decision(0.31, thresholds_L),
        metrics=metrics,
    )
    parts = load_model(tmp_path / "m")
    assert (parts.labels.labels, parts.labels.names) == (LABELS.labels, LABELS.names)
    assert parts.labels.train_counts.tolist() == [5, 2, 1]
    assert parts.decision.threshold == 0.31
    np.testing.assert_array_equal(parts.decision.thresholds_L, thresholds_L)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "packaged:all-MiniLM-L6-v2" in card
    assert "base_model" not in card
    assert "| dev | 50.0 | 12.3 |" in card
    assert parts.tokenizer("hello")["input_ids"] == [101, 7592, 102]


def test_the_card_of_a_single_label_model_shows_what_means_something_there(tmp_path):
    config, metrics = (
        CASES["pretrained, frozen"][0],
        {"test": {"accuracy": 0.9, "macro_f1": 0.8, "p@5": 0.2}},
    )
    export(tmp_path / "m", config, HEAD_ONLY, task="single_label", metrics=metrics)
    card = (tmp_path / "m" / "README.md").read_text()
    assert (
        "| split | accuracy | macro_f1 |\n|---|---|---|\n| test | 90.0 | 80.0 |" in card
    )
    assert not re.search("p@5|extreme|top_k", card)


@pytest.mark.parametrize("lora", [None, LORA])
def test_what_stands_on_a_pretrained_model_is_exported_whole(tmp_path, lora):
    """It loads where the pretrained model cannot be had any more."""
    source = shutil.copytree(
        resolve_pretrained("packaged:all-MiniLM-L6-v2"), tmp_path / "pretrained"
    )
    base = HuggingFaceConfig(name=str(source), window=24, lora=lora)
    config = model_config(
        MaxPoolConfig(base=base), FlatConfig(pooling=PlainPoolingConfig(kind="first"))
    )
    classifier = export(tmp_path / "model", config)
    shutil.rmtree(source)
    parts = load_model(tmp_path / "model")
    assert_same(classifier, parts.classifier)
    assert parts.info.model == config
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"backbone: {source}" in card
    assert "base_model" not in card  # the Hub refuses what is not on it


def test_an_earlier_export_is_replaced_whole(tmp_path):
    export(tmp_path / "model", CASES["pretrained with adapters"][0])
    export(tmp_path / "model", CASES["pretrained, frozen"][0], HEAD_ONLY)
    assert not (tmp_path / "model" / "adapter").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    directory = tmp_path_factory.mktemp("exported") / "model"
    export(directory, CASES["random with adapters"][0])
    return directory


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "model")


@pytest.mark.parametrize(
    "name",
    [
        "head.safetensors",
        "adapter/adapter_model.safetensors",
        "encoder/model.safetensors",
        "labels.arrow",
    ],
)
def test_missing_cut_and_flipped_files_are_named(copy, name):
    path = copy / name
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (content[: len(content) // 2], bytes(flipped), b""):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"{name}: damaged"):
            load_model(copy)
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"{name}: missing"):
        load_model(copy)


def edit_config(directory, **changes):
    content = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(content | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something-else"}, r"config\.json: not a model exported by xmtc"),
        ({"format_version": 99}, r"config\.json: format version 99"),
        ({"vocab_size": "many"}, r"config\.json: .*vocab_size: "),
        ({"surprise": 1}, r"config\.json: .*surprise: "),
    ],
)
def test_foreign_configurations_are_refused(copy, changes, message):
    edit_config(copy, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_model(copy)


def test_other_folders_and_broken_json_are_refused(copy, tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json: missing"):
        load_model(tmp_path)
    (copy / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        load_model(copy)


def test_weights_that_do_not_fit_are_refused(copy):
    head = load_file(copy / "head.safetensors")
    save_file(
        {name: t for name, t in head.items() if name != "queries"},
        copy / "head.safetensors",
    )
    checksums = json.loads((copy / "config.json").read_text())["sha256"]
    edit_config(
        copy,
        sha256=checksums | {"head.safetensors": file_sha256(copy / "head.safetensors")},
    )
    with pytest.raises(
        CheckpointError,
        match=r"head\.safetensors: does not fit its config\.json: .*queries",
    ):
        load_model(copy)


@pytest.mark.parametrize(
    "content",
    [
        '{"rule": "micro", "global": "x", "per_label": null}',
        '{"rule": "best", "global": 0.5, "per_label": null}',
        "[]",
        '{"rule": "micro", "global": 0.5, "per_label": [0.5]}',
    ],
)
def test_thresholds_may_be_edited_but_must_fit(copy, content):
    (copy / "thresholds.json").write_text(
        '{"rule": "micro", "global": 0.4, "per_label": null}'
    )
    assert load_model(copy).decision.threshold == 0.4
    (copy / "thresholds.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"thresholds\.json: "):
        load_model(copy)


def test_a_backbone_that_cannot_be_had_is_named(tmp_path):
    config = CASES["pretrained, frozen"][0]
    export(tmp_path / "model", config, HEAD_ONLY)
    content = json.loads((tmp_path / "model" / "config.json").read_text())
    content["model"]["encoder"]["name"] = "no-such/model"
    (tmp_path / "model" / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"cannot load 'no-such/model'"):
        load_model(tmp_path / "model")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="cannot be written"):
        export(tmp_path / "model", CASES["pretrained, frozen"][0], HEAD_ONLY)
