"""The contrastive loss beside the classification loss, and what encoders bring along."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from tiny import VOCAB, whole_documents
from xmtc.losses.base import Targets
from xmtc.losses.config import CrossEntropyConfig, SupervisedContrastiveConfig
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, MaxPoolConfig
from xmtc.models.encoders.light_config import BagConfig
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.training.config import FinetuneConfig
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.label_shard import LabelShard

CONTRASTIVE = SupervisedContrastiveConfig(weight=0.3, queue_size=8)


@pytest.mark.parametrize("head", [FlatConfig(dropout=0.0), LabelAttentionConfig(width=16, heads=2)])
def test_contrastive_loss_is_added_in_training(head):
    torch.manual_seed(0)
    classifier = ModelConfig(encoder=BagConfig(), head=head, overlap=2).build(VOCAB, labels=3).eval()
    batch = whole_documents([5, 7, 3, 6], positives=[(0, 1), (1, 1), (2, 0), (3, 0)])
    losses = {}
    for contrastive in (None, CONTRASTIVE):
        settings = FinetuneConfig(loss=CrossEntropyConfig(), contrastive=contrastive)
        objective = FinetuneObjective(classifier, settings, dict, LabelShard(classifier))
        losses[contrastive] = objective(batch, 0)
    features = classifier.head.document_vectors(classifier.encode(batch), batch.mask_BT)
    targets = Targets(batch.rows_P, batch.labels_P, batch.weight_B)
    alone = CONTRASTIVE.build()(features, targets)
    torch.testing.assert_close(losses[CONTRASTIVE].sum, losses[None].sum + alone.sum)
    assert alone.sum > 0
    assert losses[CONTRASTIVE].count == 4
    assert objective.read_metrics() == {"train/contrastive": pytest.approx(alone.sum.item() / 4)}
    assert objective.read_metrics() == {}


def test_wrapped_backbones_bring_their_tokenizer():
    base = HuggingFaceConfig(name="somewhere")
    encoders = (base, MaxPoolConfig(base=base))
    assert [encoder.tokenizer_name for encoder in encoders] == ["somewhere"] * 2
    assert BagConfig().tokenizer_name is None
