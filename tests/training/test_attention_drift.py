"""How far fine-tuning moves the attention."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from tiny import VOCAB, tiny, whole_documents
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.light_config import BagConfig
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.training.attention_drift import AttentionDrift
from xmtc.training.label_shard import LabelShard


@pytest.mark.parametrize("normaliser", ["softmax", "sparsemax", "entmax15"])
def test_drift_is_the_share_of_attention_that_moved(normaliser):
    torch.manual_seed(0)
    head = LabelAttentionConfig(width=16, heads=2, normaliser=normaliser, normalize=False)
    classifier = ModelConfig(encoder=BagConfig(), head=head, overlap=2).build(VOCAB, labels=3).eval()
    head = classifier.head
    with torch.no_grad():
        head.queries.mul_(1e5)  # each label looks at one token
    drift = AttentionDrift(
        classifier, whole_documents([5, 7, 3, 6], positives=[(0, 1), (1, 0)]), LabelShard(classifier)
    )
    assert drift() == 0
    with torch.no_grad():
        head.queries.neg_()
    assert drift() == pytest.approx(1, abs=1e-3), "and now at another"
    with torch.no_grad():
        head.queries.zero_()
    assert 0.5 < drift() < 1, "and now at all"


def test_dropout_of_an_encoder_that_trains_is_no_drift():
    torch.manual_seed(0)
    head = LabelAttentionConfig(width=16, heads=2)
    encoder = HuggingFaceConfig(from_config=tiny("bert"), dropout=0.5)
    classifier = ModelConfig(encoder=encoder, head=head, overlap=2).build(VOCAB, labels=3).train()
    drift = AttentionDrift(
        classifier, whole_documents([5, 7, 3, 6], positives=[(0, 1), (1, 0)]), LabelShard(classifier)
    )
    assert drift() == 0
    assert all(module.training for module in classifier.modules()), "training goes on as before"
