"""Two towers: a label is what its text says, to training, scoring, exports and labels nobody has seen."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
import xmtc
from named_model import LABELS, NAMES, export
from xmtc.artefact.export import load_model
from xmtc.errors import ConfigError
from xmtc.labels.extend import add_labels
from xmtc.models.heads.config import TwoTowerConfig
from xmtc.models.heads.two_tower import TwoTowerHead
from xmtc.models.label_rows import TextVectors, refresh
from xmtc.models.poolings.config import AttentionPoolingConfig, PlainPoolingConfig
from xmtc.pipeline import train_run

HEAD = "model.head={kind: two_tower, width: 16, dropout: 0.0, scale: 5.0}"
SETTINGS = (HEAD, *tiny_runs.RANDOM_START, "finetune.sampled_labels=4")


def documents() -> tuple[torch.Tensor, torch.Tensor]:
    mask_BT = torch.arange(5) < torch.tensor([5, 2])[:, None]
    return torch.randn(2, 5, 12) * mask_BT[..., None], mask_BT


@pytest.mark.parametrize(
    "pooling", [PlainPoolingConfig(), AttentionPoolingConfig(heads=2)]
)
def test_logits_are_scaled_cosines_and_come_apart_by_token(pooling) -> None:
    torch.manual_seed(0)
    head = TwoTowerConfig(width=8, pooling=pooling, dropout=0.0).build(12, 6)
    texts_SD, labels_S = torch.randn(3, 12), torch.tensor([4, 0, 2])
    rows_SP = head.rows_of_texts(texts_SD)
    head.keep_rows(rows_SP, labels_S)
    with torch.no_grad():
        head.bias.normal_()
        x_BTD, mask_BT = documents()
        logits_BS = head.score_rows(head.read(x_BTD, mask_BT), rows_SP, labels_S)
        torch.testing.assert_close(head(x_BTD, mask_BT)[:, labels_S], logits_BS)
        torch.testing.assert_close(head(x_BTD, mask_BT, labels_S), logits_BS)
        cosine_BS = torch.cosine_similarity(
            head.document_vectors(x_BTD, mask_BT)[:, None],
            head.weights[labels_S][None],
            dim=2,
        )
        torch.testing.assert_close(logits_BS, 20 * cosine_BS + head.bias[labels_S])
        shares_BST = head.contributions(x_BTD, mask_BT, labels_S.expand(2, -1))
        torch.testing.assert_close(
            shares_BST.sum(2) + head.bias[labels_S], logits_BS, rtol=1e-4, atol=1e-5
        )


def test_the_gradient_reaches_both_towers_and_no_table() -> None:
    head = TwoTowerConfig(width=8, dropout=0.0).build(12, 6)
    texts_SD = torch.randn(3, 12, requires_grad=True)
    head.score_rows(
        head.read(*documents()), head.rows_of_texts(texts_SD), torch.tensor([4, 0, 2])
    ).square().sum().backward()
    assert texts_SD.grad is not None
    without = [
        name for name, parameter in head.named_parameters() if parameter.grad is None
    ]
    assert without == ["weights"]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return tiny_runs.write_config(tmp_path_factory.mktemp("towers"))


@pytest.mark.parametrize(
    "draw", ["finetune.sampled_labels=6", "finetune.mining={candidates: 2, uniform: 2}"]
)
def test_it_trains_end_to_end_and_exports_its_word_vectors(path, draw) -> None:
    drop = () if "sampled" in draw else ("finetune.sampled_labels=null",)
    run = train_run(
        tiny_runs.load(path, *SETTINGS, draw, *drop, f"name=towers-{draw[9:15]}")
    )
    losses = list(tiny_runs.losses(run, "finetune").values())
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    parts = load_model(run / "model")
    head = parts.classifier.head
    assert isinstance(head, TwoTowerHead)
    exported = head.weights.detach().clone()
    texts = TextVectors(
        parts.classifier, parts.tokenizer, parts.labels.labels, max_length=32, overlap=4
    )
    refresh(head, texts)
    torch.testing.assert_close(exported, head.weights.detach(), rtol=1e-4, atol=1e-5)
    found = xmtc.Model.from_pretrained(run / "model").predict(
        ["the fishery and fishing of that"], top_k=3, shortlist=4
    )
    assert len(found[0]) == 3


def test_a_new_label_is_its_text(tmp_path) -> None:
    directory = export(
        tmp_path / "model", TwoTowerConfig(width=16, dropout=0.0), calibrated=False
    )
    (tmp_path / "labels.jsonl").write_text(
        json.dumps({"label": "new", "name": NAMES[3]}) + "\n"
    )
    add_labels(directory, tmp_path / "labels.jsonl", tmp_path / "more")
    before, after = (
        load_file(folder / "head.safetensors")
        for folder in (directory, tmp_path / "more")
    )
    assert torch.equal(after["weights"][:LABELS], before["weights"])
    parts = load_model(directory)
    make = partial(
        TextVectors, parts.classifier, parts.tokenizer, max_length=100, overlap=6
    )
    refresh(parts.classifier.head, make(NAMES))
    torch.testing.assert_close(
        after["weights"][LABELS],
        parts.classifier.head.weights[3].detach(),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("finetune.sampled_labels=null", "sampled_labels or finetune.mining"),
        ("model.label_text=true", "label_text"),
        ("finetune.label_optimizer={kind: lazy_adam}", "label_optimizer"),
    ],
)
def test_what_does_not_go_with_it_is_refused(path, setting, named) -> None:
    with pytest.raises(ConfigError, match=named):
        tiny_runs.load(path, *SETTINGS, setting)
