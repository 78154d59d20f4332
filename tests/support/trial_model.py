"""A tiny exported model, for tests of predictions and of scoring."""

import numpy as np
import torch
from transformers import AutoTokenizer

from xmtc.artefact.export import ModelParts, export_model
from xmtc.artefact.info import ModelInfo
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import resolve_pretrained
from xmtc.fusion.decision import Decision
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.heads.config import LabelAttentionConfig

VOCAB, LABELS = 30522, 23
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
TEXTS = [
    "Acute kidney failure, treated with haemodialysis.",
    "A regulation on the labelling of spirits.",
    "kidney",
    " ".join(
        f"paragraph {i} of a very long document about fisheries;" for i in range(20)
    ),
]


def export(directory, head=None, task="multi_label", encoder=None):
    torch.manual_seed(0)
    encoder = encoder or HuggingFaceConfig(from_config=BERT, window=24)
    config = ModelConfig(
        encoder=encoder, head=head or LabelAttentionConfig(width=16, heads=2), overlap=6
    )
    classifier = config.build(VOCAB, LABELS)
    labels = [f"L{i:02d}" for i in range(LABELS)]
    table = LabelTable(labels, [label.lower() for label in labels], np.arange(LABELS))
    info = ModelInfo(
        name="trial", model=config, vocab_size=VOCAB, max_length=100, task=task
    )
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    trained = dict(classifier.named_parameters())
    return export_model(
        directory,
        ModelParts(info, classifier, tokenizer, table, Decision(0.4)),
        trained,
    )
