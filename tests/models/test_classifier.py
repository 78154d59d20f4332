"""The classifier: windows put together to documents, parameter groups, frozen encoders, cached states."""

from dataclasses import replace

import pytest
import torch

from tiny import VOCAB, tiny, train_only, whole_documents
from xmtc.data.collate import Batch
from xmtc.errors import ConfigError
from xmtc.models.classifier import gather_documents
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig

LABELS = 11
HEAD = LabelAttentionConfig(width=16, heads=2)


def build(family: str = "llama", head=HEAD, overlap: int = 4, **encoder):
    torch.manual_seed(0)
    encoder_config = HuggingFaceConfig(from_config=tiny(family), **encoder)
    return ModelConfig(encoder=encoder_config, head=head, overlap=overlap).build(
        VOCAB, LABELS
    )


@pytest.mark.parametrize("head", [HEAD, FlatConfig()])
def test_a_shortlist_gives_the_same_logits_as_all_labels(head):
    model = build(head=head).eval()
    batch = whole_documents([12, 7])
    shortlist_BS = torch.tensor([[3, 0, 10], [5, 6, 1]])
    logits_BL = model(batch)
    assert logits_BL.shape == (2, LABELS)
    found_BS = model.head.score(model.read(batch), batch.mask_BT, shortlist_BS)
    torch.testing.assert_close(
        found_BS, logits_BL.gather(1, shortlist_BS), atol=1e-5, rtol=1e-4
    )


def test_documents_are_gathered_from_the_windows_that_represent_their_tokens():
    # Document 0: tokens 0..5 in windows [0 1 2 3], [2 3 4 5]; document 1: three tokens in one window.
    hidden_WUD = torch.arange(12.0).view(3, 4, 1)
    batch = Batch(
        documents_B=torch.tensor([7, 8]),
        token_ids_BT=torch.ones(2, 6, dtype=torch.long),
        mask_BT=torch.tensor([[True] * 6, [True] * 3 + [False] * 3]),
        input_ids_WU=torch.ones(3, 4, dtype=torch.long),
        attention_mask_WU=torch.tensor([[True] * 4, [True] * 4, [True] * 3 + [False]]),
        position_BT=torch.tensor([[0, 1, 2, 5, 6, 7], [8, 9, 10, 0, 0, 0]]),
        rows_P=torch.tensor([0]),
        labels_P=torch.tensor([0]),
        weight_B=torch.ones(2),
    )
    hidden_BTD = gather_documents(hidden_WUD, batch)
    assert hidden_BTD.squeeze(-1).tolist() == [[0, 1, 2, 5, 6, 7], [8, 9, 10, 0, 0, 0]]


@pytest.mark.parametrize("family", ["llama", "bert", "deberta-v2"])
@pytest.mark.parametrize("lora", [None, LoraConfig(r=2)])
def test_groups_partition_what_can_train_from_the_head_down(family, lora):
    model = build(family, lora=lora)
    groups = model.parameter_groups()
    encoder = (
        ["encoder.1", "encoder.0"] if lora else ["encoder.2", "encoder.1", "encoder.0"]
    )
    assert list(groups) == ["head.attention", "head.classifier", *encoder]
    grouped = [id(p) for parameters in groups.values() for p in parameters]
    assert sorted(grouped) == sorted(
        id(p) for p in model.parameters() if p.requires_grad
    )
    if lora:
        names = {id(p): n for n, p in model.named_parameters()}
        assert all("lora_" in names[id(p)] for g in encoder for p in groups[g])


def test_a_head_without_attention_has_one_group():
    assert list(build(head=FlatConfig(), lora=LoraConfig(r=2)).parameter_groups()) == [
        "head.classifier",
        "encoder.1",
        "encoder.0",
    ]


def test_a_frozen_encoder_has_neither_dropout_nor_graph():
    model = build("bert", dropout=0.5).train()
    batch = whole_documents([12, 7])
    assert not torch.equal(model.encode(batch), model.encode(batch))
    assert model.encode(batch).requires_grad
    train_only(model, ["head.attention", "head.classifier"])
    hidden_BTD = model.train().encode(batch)
    assert not hidden_BTD.requires_grad
    assert torch.equal(hidden_BTD, model.encode(batch))
    assert model.head.training
    train_only(model, ["head.classifier", "encoder.2"])
    assert not torch.equal(model.encode(batch), model.encode(batch))


def test_cached_states_stand_in_for_the_encoder():
    model = build().eval()
    batch = whole_documents([12, 7])
    cached = replace(
        batch,
        hidden_BTD=model.encode(batch),
        input_ids_WU=torch.zeros_like(batch.input_ids_WU),
    )
    torch.testing.assert_close(model(cached), model(batch))


def test_windows_may_not_be_mostly_overlap():
    with pytest.raises(ConfigError, match=r"model\.overlap: 40 .* at most 32"):
        build(overlap=40)
