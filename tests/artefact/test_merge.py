"""Models whose adapters are folded into the backbone."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tiny import tiny, train_only, whole_documents
from xmtc.artefact.export import ModelParts, export_model, load_model
from xmtc.artefact.info import ModelInfo
from xmtc.artefact.merge import merge_adapters
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import DEFAULT_BACKBONE, resolve_pretrained
from xmtc.errors import ConfigError
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import (
    HuggingFaceConfig,
    LoraConfig,
    MaxPoolConfig,
)
from xmtc.models.heads.config import FlatConfig

VOCAB = 30522
LABELS = LabelTable(
    ["a", "b", "c"], ["Letter A", "", "Letter C"], np.array([5, 2, 1]), None
)
LORA = LoraConfig(r=2, dropout=0.0, target_modules="all_linear")
ENCODERS = {
    "decoder": HuggingFaceConfig(from_config=tiny("llama"), lora=LORA),
    "transposed layers": HuggingFaceConfig(from_config=tiny("gpt2"), lora=LORA),
    "pretrained": HuggingFaceConfig(lora=LORA),
    "bfloat16": HuggingFaceConfig(
        from_config=tiny("llama"), lora=LORA, dtype="bfloat16"
    ),
    "within another encoder": MaxPoolConfig(
        base=HuggingFaceConfig(from_config=tiny("bert"), lora=LORA), last_layers=2
    ),
}


def export(folder, encoder):
    """Export a model whose adapters are far from their start."""
    torch.manual_seed(0)
    config = ModelConfig(encoder=encoder, head=FlatConfig(), overlap=4)
    classifier = config.build(VOCAB, len(LABELS.labels)).eval()
    train_only(classifier, list(classifier.parameter_groups()))
    trained = {
        name: parameter
        for name, parameter in classifier.named_parameters()
        if parameter.requires_grad
    }
    with torch.no_grad():
        for parameter in trained.values():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    info = ModelInfo(name="trial", model=config, vocab_size=VOCAB, max_length=64)
    tokenizer = AutoTokenizer.from_pretrained(resolve_pretrained(DEFAULT_BACKBONE))
    export_model(
        folder,
        ModelParts(info, classifier, tokenizer, LABELS),
        trained,
        {"test": {"p@1": 0.5}},
    )
    return classifier


@pytest.mark.parametrize("name", ENCODERS)
def test_a_merged_model_gives_the_same_logits_without_adapters(name, tmp_path):
    classifier = export(tmp_path / "model", ENCODERS[name])
    change = merge_adapters(tmp_path / "model", tmp_path / "merged")
    parts = load_model(tmp_path / "merged")
    assert parts.info.model.encoder.backbone.lora is None
    assert not (tmp_path / "merged" / "adapter").exists()
    assert not any("lora" in key for key, _ in parts.classifier.named_parameters())
    batch = whole_documents([12, 7])
    tolerance = 0.05 if name == "bfloat16" else 1e-5
    assert change < tolerance
    with torch.no_grad():
        torch.testing.assert_close(
            parts.classifier(batch), classifier(batch), atol=tolerance, rtol=tolerance
        )
    assert "folded into the backbone" in (tmp_path / "merged" / "README.md").read_text()


def test_other_programs_load_the_merged_backbone(tmp_path):
    classifier = export(tmp_path / "model", ENCODERS["decoder"])
    merge_adapters(tmp_path / "model", tmp_path / "merged")
    plain = AutoModel.from_pretrained(tmp_path / "merged" / "encoder").eval()
    batch = whole_documents([9])
    with torch.no_grad():
        expected_WUD = classifier.encoder(batch.input_ids_WU, batch.attention_mask_WU)
        states_WUD = plain(batch.input_ids_WU).last_hidden_state
    torch.testing.assert_close(states_WUD, expected_WUD, atol=1e-5, rtol=1e-5)


def test_a_model_without_adapters_is_refused(tmp_path):
    export(tmp_path / "model", HuggingFaceConfig(from_config=tiny("bert")))
    with pytest.raises(ConfigError, match="no LoRA adapters"):
        merge_adapters(tmp_path / "model", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_quantised_backbone_is_refused(tmp_path):
    pytest.importorskip("bitsandbytes")
    shape = tiny("llama", hidden_size=128, intermediate_size=128)
    HuggingFaceConfig(from_config=shape).build(VOCAB).transformer.save_pretrained(
        tmp_path / "base"
    )
    export(
        tmp_path / "model",
        HuggingFaceConfig(name=str(tmp_path / "base"), quantize="nf4", lora=LORA),
    )
    with pytest.raises(ConfigError, match="backbone is quantised"):
        merge_adapters(tmp_path / "model", tmp_path / "merged")


def test_the_command_writes_a_model_with_its_answers(tmp_path, xmtc):
    export(tmp_path / "model", ENCODERS["decoder"])
    outcome = xmtc("model", "merge", tmp_path / "model", "-o", tmp_path / "merged")
    assert outcome.code == 0, outcome.err
    assert "adapters folded into encoder/" in outcome.out
    assert (tmp_path / "merged" / "encoder" / "model.safetensors").is_file()
