"""What a label set takes: arithmetic against real tables and optimizers, and advice that fits."""

import re
from pathlib import Path

import psutil
import pytest
import torch

from xmtc.config.load import load_config
from xmtc.estimate import check
from xmtc.estimate.estimate import Workload, estimate, label_lines
from xmtc.estimate.label_memory import cheaper, label_memory
from xmtc.run.config import RunConfig

MINILM = Path(__file__).parents[2] / "configs/eurlex57k_attention.yaml"
WIDTH, DOCUMENTS = 384, 8
ROWS = "finetune.label_optimizer={kind: %s, learning_rate: 0.01}"


def config(*overrides: str) -> RunConfig:
    return load_config(RunConfig, MINILM, ["finetune.sampled_labels=null", "distributed.workers=0", *overrides])


@pytest.mark.parametrize("head", ["model.head={kind: label_attention, width: 64}", "model.head={kind: flat}"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tables_are_those_of_the_head(head, dtype):
    settings = config(head, f"model.head.row_dtype={dtype}")
    tables = settings.model.head.build(WIDTH, 500).label_tables().values()
    found = label_memory(settings, WIDTH, 500, DOCUMENTS)
    assert found.tables == sum(t.numel() * t.element_size() for t in tables)
    numbers = sum(t.numel() for t in tables)
    assert found.training == 12 * numbers + 4 * 500 * len(tables)  # gradient, AdamW's two moments, a row's steps
    assert found.logits == 12 * DOCUMENTS * 500


@pytest.mark.parametrize("kind", ["lazy_adam", "rowwise_adagrad"])
def test_state_of_row_wise_optimizers_is_what_they_hold(kind):
    settings = config("finetune.sampled_labels=32", ROWS % kind)
    head = settings.model.head.build(WIDTH, 500)
    optimizer = settings.finetune.label_optimizer.build(list(head.label_tables().values()))
    for table in head.label_tables().values():
        table.grad = torch.zeros_like(table)
    optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    held = sum(t.numel() * t.element_size() for t in states)
    found = label_memory(settings, WIDTH, 500, DOCUMENTS)
    gradients = 4 * 32 * sum(t.numel() for t in head.label_tables().values()) / 500
    assert found.training - gradients == held


def test_each_piece_of_advice_takes_less_than_the_one_before():
    settings = config()
    first = label_memory(settings, WIDTH, 1_000_000, DOCUMENTS).total
    found = list(cheaper(settings, WIDTH, 1_000_000, DOCUMENTS))
    totals = [first, *(memory.total for _, memory in found)]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == len(totals) == 5
    assert [setting.split("=")[0].split(" ")[0] for setting, _ in found] == [
        "finetune.sampled_labels",
        "finetune.label_optimizer",
        "model.head.row_dtype",
        "model.head",
    ]


def test_each_piece_of_advice_can_be_followed(monkeypatch):
    monkeypatch.setattr(check, "check_tokenizer", lambda _: None)
    overrides: list[str] = []
    for advice, _ in cheaper(config(), WIDTH, 1_000_000, DOCUMENTS):
        overrides += re.split(r" (?=plant\.)", advice.split(" (or")[0])
        check.check(config(*overrides))
    assert overrides[-1] == "model.head={kind: flat}"


def test_what_fits_is_reported_only_if_something_does_not(monkeypatch):
    load = Workload(documents=1000, tokens=100, longest=200, labels=1_000_000, vocab_size=30522)
    memory = type("Memory", (), {"available": 64 * 2**30, "total": 64 * 2**30})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert len(label_lines(config(), load)) == 1
    memory.available = 4 * 2**30
    lines = label_lines(config(), load)
    assert "1,000,000 labels take" in lines[0]
    assert "exceeds the 4.0 GiB" in lines[1]
    assert lines[-1].endswith("which fits")
    assert not any(line.endswith("which fits") for line in lines[:-1])


def test_the_estimate_counts_only_rows_that_a_step_touches():
    load = Workload(documents=1000, tokens=100, longest=200, labels=200_000, vocab_size=30522)
    dense = estimate(config(), load)
    sparse = estimate(config("finetune.sampled_labels=512", ROWS % "rowwise_adagrad"), load)
    rows = "label rows: gradients, moments"
    assert sparse.memory[rows] < 0.01 * dense.memory[rows]
    assert sparse.memory["activations, head, logits"] < dense.memory["activations, head, logits"]
    assert sparse.peak < dense.peak / 2
