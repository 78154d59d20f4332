"""A backbone whose weights are stored in bfloat16, as language models are: planting, training and prediction."""

import numpy as np
import pytest

from tiny_runs import load, metrics, write_config
from xmtc import Model
from xmtc.pipeline import train_run

LLAMA = (
    "model.encoder={kind: hugging_face, dtype: bfloat16, lora: {r: 2}, from_config: {model_type: llama, "
    "hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, "
    "max_position_embeddings: 32}}"
)
IN_CLOSED_FORM = {"tokens_per_micro_batch": 300, "cache_hidden": False}
LABEL_ATTENTION = "{kind: label_attention, width: 16, heads: 2}"
CASES = {
    "rows": (LABEL_ATTENTION, "plant.parts=[rows]"),
    "rows and attention": (LABEL_ATTENTION, "plant.parts=[attention, rows]"),
    "what dev chooses": (LABEL_ATTENTION, "plant.parts=[attention, values, rows]"),
    "stage 1": (
        LABEL_ATTENTION,
        "plant={method: ranking, parts: [attention, rows], epochs: 1}",
    ),
    "flat": ("{kind: flat}", "plant.parts=[rows]"),
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_heads_are_planted_over_a_backbone_in_bfloat16(tmp_path, case, precision):
    head, plant = CASES[case]
    config = load(
        write_config(tmp_path, plant=IN_CLOSED_FORM),
        LLAMA,
        f"model.head={head}",
        plant,
        "finetune.phases=[{epochs: 1, encoder_layers: -1}]",
        f"distributed.precision={precision}",
    )
    train_run(config)
    run = tmp_path / "runs" / "tiny"
    losses = [line["train/loss"] for line in metrics(run) if "train/loss" in line]
    assert np.isfinite(losses).all()
    model = Model.from_pretrained(run / "model", bfloat16=False)
    (prediction,) = model.predict(["the lawery of fishing"], top_k=6)
    assert all(0 <= label.score <= 1 for label in prediction)
    assert {label.label for label in prediction} == {
        "law",
        "fish",
        "heart",
        "trade",
        "school",
        "steel",
    }
