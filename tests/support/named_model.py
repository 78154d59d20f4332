"""An exported model whose labels have names of two words, for tests of label changes."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer

from xmtc.artefact.export import ModelParts, export_model
from xmtc.artefact.info import ModelInfo
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import resolve_pretrained
from xmtc.fusion.decision import Decision
from xmtc.models.calibration import Calibration
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.heads.config import LabelAttentionConfig

VOCAB, NAMES = (
    30522,
    [
        f"{a} {b}"
        for a in ("fish", "steel", "school", "trade", "heart")
        for b in "abcdef"
    ],
)
LABELS = len(NAMES)
TEXTS = [
    "A regulation on the labelling of fish.",
    "steel works",
    "the heart of the school is trade",
]
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
BERT |= {
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}


def export(
    directory: Path, head=None, *, task="multi_label", calibrated=True, counts=None
) -> Path:
    torch.manual_seed(0)
    encoder = HuggingFaceConfig(from_config=BERT, window=24)
    model = ModelConfig(
        encoder=encoder, head=head or LabelAttentionConfig(width=16, heads=2), overlap=6
    )
    classifier = model.build(VOCAB, LABELS)
    if calibrated:
        classifier.calibration = Calibration(
            torch.rand(LABELS) + 0.5, torch.randn(LABELS)
        )
    counts = np.arange(LABELS) if counts is None else counts
    table = LabelTable(
        [f"L{i:02d}" for i in range(LABELS)], NAMES, counts, [("top",)] * LABELS
    )
    info = ModelInfo(
        name="trial", model=model, vocab_size=VOCAB, max_length=100, task=task
    )
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    thresholds_L = (
        np.linspace(0.1, 0.9, LABELS, dtype=np.float32) if calibrated else None
    )
    parts = ModelParts(info, classifier, tokenizer, table, Decision(0.4, thresholds_L))
    return export_model(directory, parts, dict(classifier.named_parameters()))
