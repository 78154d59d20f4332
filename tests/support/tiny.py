"""Tiny random Transformers configurations, and batches, for the tests of models."""

from collections.abc import Collection
from typing import Any

import torch

from xmtc.data.collate import Batch
from xmtc.models.classifier import Classifier

VOCAB = 100
_SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_GROUPED = _SHAPE | {"num_key_value_heads": 2}
_RELATIVE = _SHAPE | {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "max_relative_positions": -1,
    "type_vocab_size": 0,
}
ENCODERS = {
    "bert": _SHAPE,
    "roberta": _SHAPE | {"max_position_embeddings": 66, "type_vocab_size": 1},
    "deberta": _RELATIVE,
    "deberta-v2": _RELATIVE
    | {"norm_rel_ebd": "layer_norm", "position_buckets": 16, "share_att_key": True},
    "modernbert": _SHAPE,
}
DECODERS = {
    "llama": _GROUPED,
    "mistral": _GROUPED,
    "qwen2": _GROUPED,
    "qwen3": _GROUPED | {"head_dim": 8},
    "phi3": _GROUPED,
    "phi": _SHAPE,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
}
FAMILIES = ENCODERS | DECODERS


def tiny(family: str, **overrides: Any) -> dict[str, Any]:
    return {"model_type": family} | FAMILIES[family] | overrides


def whole_documents(
    lengths: list[int], *, positives: list[tuple[int, int]] | None = None, seed: int = 0
) -> Batch:
    """Documents that are their own windows."""
    generator = torch.Generator().manual_seed(seed)
    ids_BT = torch.randint(5, VOCAB, (len(lengths), max(lengths)), generator=generator)
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids_BT = ids_BT.masked_fill(~mask_BT, 0)
    rows_P, labels_P = torch.tensor(positives or [(0, 0)]).T
    return Batch(
        documents_B=torch.arange(len(lengths)),
        token_ids_BT=ids_BT,
        mask_BT=mask_BT,
        input_ids_WU=ids_BT,
        attention_mask_WU=mask_BT,
        position_BT=None,
        rows_P=rows_P,
        labels_P=labels_P,
        weight_B=torch.ones(len(lengths)),
    )


def train_only(classifier: Classifier, groups: Collection[str]) -> None:
    """Make the parameters of these groups trainable, and freeze all others."""
    for name, parameters in classifier.parameter_groups().items():
        for parameter in parameters:
            parameter.requires_grad_(name in groups)
    classifier.train(classifier.training)
