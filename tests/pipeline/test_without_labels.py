"""A corpus in which many documents have no label, through every stage that looks at labels."""

import json
from pathlib import Path

import pytest
import torch

import tiny_runs
import xmtc
from xmtc.pipeline import train_run
from xmtc.report.run_results import RunResults

SCORERS = (
    "[{kind: linear, penalty: 0.3}, {kind: word_neighbours, neighbours: 5}, {kind: label_text}, "
    "{kind: state_neighbours, neighbours: 5}]"
)
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
}
MODEL = {
    "encoder": {
        "kind": "hugging_face",
        "from_config": {
            **BERT,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
        },
    },
    "head": {"kind": "label_attention", "width": 16, "heads": 2},
    "overlap": 4,
}


def with_bare_documents(folder: Path) -> Path:
    """The tiny run; the first 20 training documents, more than a batch, and every third of the others have no label."""
    path = tiny_runs.write_config(folder, model=MODEL)
    for split in ("train", "dev", "test"):
        file = folder / f"{split}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for i, row in enumerate(rows):
            if i % 3 == 0 or (split == "train" and i < 20):
                row["labels"] = []
        tiny_runs.write_jsonl(file, rows)
    return path


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(
            (f"model.scorers={SCORERS}", "finetune.sampled_labels=2"),
            id="scorers, planted, sampled labels",
        ),
        pytest.param(
            (*tiny_runs.RANDOM_START, "finetune.mining={candidates: 2, uniform: 1}"),
            id="mined labels",
        ),
    ],
)
def test_a_run_trains_and_counts_them(tmp_path, overrides):
    torch.set_num_threads(1)
    settings = (
        "plant.batch_size=3",
        "plant.epochs=1",
        "finetune.batch_size=3",
        "finetune.phases=[{epochs: 1}]",
    )
    config = tiny_runs.load(with_bare_documents(tmp_path), *settings, *overrides)
    run = train_run(config)
    metrics = RunResults.load(run, "dev").metrics
    assert (metrics["docs"], metrics["docs_with_labels"]) == (16, 10)
    assert 0 < metrics["ndcg@5"] <= 1
    assert (
        "6 of 16 documents have no gold labels"
        in (run / "eval" / "dev" / "report.html").read_text()
    )
    xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
        ["lawery lawing"], top_k=2
    )
