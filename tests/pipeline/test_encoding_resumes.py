"""A run that is killed while it encodes the corpus does not encode it again."""

import pytest
import torch

import tiny_runs
from xmtc.pipeline import train_run
from xmtc.stages import batches, hidden_states
from xmtc.stages.hidden_states import HiddenStates

BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
}
ENCODER = {
    "kind": "hugging_face",
    "from_config": {**BERT, "num_attention_heads": 2, "max_position_embeddings": 64},
}
HEADS = [
    {"kind": "label_attention", "width": 16, "heads": 2},
    {"kind": "flat", "pooling": {"kind": "summary"}},
]


@pytest.mark.parametrize("head", HEADS, ids=["hidden states of tokens", "poolings"])
def test_encoding_continues_after_a_kill(tmp_path, monkeypatch, head):
    torch.set_num_threads(1)
    model = {"encoder": ENCODER, "head": head, "overlap": 4}
    settings = (*tiny_runs.RANDOM_START, "finetune.phases=[{epochs: 1}]")
    path = tiny_runs.write_config(tmp_path, model=model)
    encode, encoded, kill_after = HiddenStates._encode, [], [25]

    def counted(self, micro_batch, writer, collate):
        if kill_after and len(encoded) > kill_after[0]:
            kill_after.clear()
            raise KeyboardInterrupt
        if writer._directory.name == "train":
            encoded.extend(micro_batch.documents.tolist())
        encode(self, micro_batch, writer, collate)

    monkeypatch.setattr(batches, "ENCODE_TOKENS", 100)
    monkeypatch.setattr(hidden_states, "_FLUSH_S", 0.0)
    monkeypatch.setattr(HiddenStates, "_encode", counted)
    with pytest.raises(KeyboardInterrupt):
        train_run(tiny_runs.load(path, *settings))
    assert 0 < len(encoded) < 60
    train_run(tiny_runs.load(path, *settings))
    assert sorted(encoded) == list(range(60))
