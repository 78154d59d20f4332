"""Estimated memory against what tiny models are measured to take, and against published sizes of large ones."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tiny import train_only
from xmtc.config.load import load_config
from xmtc.data.collate import Batch
from xmtc.errors import ConfigError
from xmtc.estimate.estimate import estimate
from xmtc.estimate.memory import (
    LOGITS,
    MOMENTS,
    TABLES,
    backbone_shape,
    label_lines,
    label_memory,
    meta_classifier,
    trained_parameters,
    worker_memory,
)
from xmtc.estimate.size import Size
from xmtc.planting.projections import PlantSums
from xmtc.planting.prototypes import PrototypeSums
from xmtc.run.config import RunConfig
from xmtc.training.unfreeze import trained_groups

ROOT = Path(__file__).parents[2]
SHAPE = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "max_position_embeddings": 256,
}
SIZE = Size(train=1000, dev=100, tokens=200, longest=600, labels=300, vocab_size=500)
ACTIVATIONS, ROWS = "activations, head, logits", "label rows: gradients, moments"
PLANTING, META = "planting, beyond training", torch.device("meta")
ROW_WISE = "finetune.label_optimizer={kind: %s, learning_rate: 0.01}"


def config(name: str = "smoke_llama", *overrides: str) -> RunConfig:
    return load_config(RunConfig, ROOT / f"configs/{name}.yaml", overrides)


def tiny(*overrides: str, documents: int = 3) -> RunConfig:
    shape = f"model.encoder.from_config={json.dumps(SHAPE)}"
    tokens = f"finetune.tokens_per_micro_batch={600 * documents}"
    return config("smoke_llama", shape, tokens, "data.max_length=600", *overrides)


def measured_peak(
    settings: RunConfig, documents: int, tokens: int, windows: int, inside: int
) -> int:
    """Bytes that PyTorch's own profiler sees allocated at most during forward and backward, without gradients."""
    backbone = settings.model.encoder.backbone
    model = settings.model.build(
        500 if backbone is None or backbone.from_config else 30522, SIZE.labels
    )
    model.train()
    train_only(
        model,
        trained_groups(list(model.parameter_groups()), settings.finetune.phases[-1]),
    )
    ids_WU, ids_BT = (
        torch.randint(500, (windows, inside)),
        torch.randint(500, (documents, tokens)),
    )
    mask_WU = torch.ones_like(ids_WU, dtype=torch.bool)
    mask_WU[-1, inside // 2 :] = documents == 1
    batch = Batch(
        documents_B=torch.arange(documents),
        token_ids_BT=ids_BT,
        mask_BT=torch.ones_like(ids_BT, dtype=torch.bool),
        input_ids_WU=ids_WU,
        attention_mask_WU=mask_WU,
        position_BT=torch.zeros_like(ids_BT),
        rows_P=torch.zeros(1, dtype=torch.long),
        labels_P=torch.zeros(1, dtype=torch.long),
        weight_B=torch.ones(documents),
    )
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        torch.nn.functional.softplus(model(batch)).mean().backward()
    now = peak = 0
    for event in recorded.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak - sum(p.nbytes for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("documents", [1, 3])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("model.encoder.gradient_checkpointing=1",),
        ("model.encoder.gradient_checkpointing=2",),
    ],
)
def test_activations_of_a_decoder_are_what_the_profiler_sees_to_within_25_percent(
    overrides: tuple[str, ...], documents: int
) -> None:
    torch.manual_seed(0)
    settings = tiny(*overrides, documents=documents)
    found = estimate(settings, SIZE).memory[ACTIVATIONS]
    assert found == pytest.approx(
        measured_peak(settings, documents, 600, 3 * documents, 256), rel=0.25
    )


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("tokens", [128, 512])
def test_activations_of_minilm_are_what_the_profiler_sees_to_within_25_percent(
    layers: int, tokens: int
) -> None:
    torch.manual_seed(0)
    phases = f"finetune.phases=[{{epochs: 1, encoder_layers: {layers}}}]"
    settings = config(
        "quickstart",
        phases,
        f"data.max_length={tokens}",
        "finetune.tokens_per_micro_batch=1024",
    )
    documents = 1024 // tokens
    size = Size(longest=tokens, labels=SIZE.labels, vocab_size=30522)
    windows = documents * (2 if tokens == 512 else 1)
    found = estimate(settings, size).memory[ACTIVATIONS]
    assert found == pytest.approx(
        measured_peak(settings, documents, tokens, windows, tokens), rel=0.25
    )


@pytest.mark.parametrize("kind", ["bigru", "cnn", "self_attention"])
def test_activations_of_encoders_from_scratch_are_what_the_profiler_sees_to_within_25_percent(
    kind: str,
) -> None:
    torch.manual_seed(0)
    settings = config(
        "eurlex57k_bigru",
        f"model.encoder={{kind: {kind}}}",
        "finetune.tokens_per_micro_batch=2048",
    )
    found = estimate(
        settings, Size(longest=256, labels=SIZE.labels, vocab_size=500)
    ).memory[ACTIVATIONS]
    assert found == pytest.approx(measured_peak(settings, 8, 256, 8, 256), rel=0.25)


def test_parameters_are_those_of_the_real_model() -> None:
    settings = tiny()
    model = settings.model.build(500, SIZE.labels)
    found = estimate(settings, SIZE)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.trained == sum(
        p.numel() for p in model.parameters() if p.requires_grad
    )
    rows = sum(table.numel() for table in model.head.label_tables().values())
    assert found.memory["gradients"] * 2 == pytest.approx(
        4 * (found.trained - rows)
    )  # ZeRO-2 on two workers
    assert found.memory["optimizer state"] * 2 == pytest.approx(
        12 * (found.trained - rows)
    )
    assert found.steps == {"plant": 2 * 63, "finetune": 3 * 63}


def test_strategies_divide_what_they_partition() -> None:
    alone = estimate(
        tiny("distributed.workers=0", "distributed.strategy=null"), SIZE
    ).memory
    three = estimate(tiny("distributed.strategy.stage=3"), SIZE, workers=4).memory
    assert three["frozen weights"] * 4 == pytest.approx(alone["frozen weights"])
    assert three["gradients"] * 4 == pytest.approx(alone["gradients"])
    assert alone["exchange buffers"] == 0


@pytest.mark.parametrize(
    ("name", "billions", "frozen_gib"),
    [
        ("mimic4_llama3", 7.50, 14.0),
        ("mimic4_mistral", 7.11, 3.7),
        ("mimic4_phi3", 3.72, 6.9),
    ],
)
def test_published_sizes(name: str, billions: float, frozen_gib: float) -> None:
    """Published sizes less the output layer, which a classifier has not: LLaMA-3-8B 8.03 B − 0.53 B, and so on."""
    settings, size = config(name), Size(labels=8000)
    model = meta_classifier(settings, size)
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert sum(p.numel() for p in frozen) / 1e9 == pytest.approx(billions, rel=0.01)
    assert len(trained_parameters(settings, model)) == len(
        list(model.parameters())
    ) - len(frozen)
    found = worker_memory(settings, model, size, 1)["frozen weights"]
    assert found / 2**30 == pytest.approx(frozen_gib, rel=0.05)


@pytest.mark.parametrize("family", ["deberta-v2", "mpnet", "longformer"])
def test_a_family_without_fused_attention_has_an_estimate_too(family: str) -> None:
    settings = tiny(f"model.encoder.from_config.model_type={family}")
    assert meta_classifier(settings, SIZE).encoder.width == 128


def test_an_unknown_backbone() -> None:
    assert backbone_shape(config("eurlex57k_bigru")) is None
    with pytest.raises(ConfigError, match="nobody/knows"):
        estimate(config("mimic4_llama3", "model.encoder.name=nobody/knows"), SIZE)


@pytest.mark.parametrize(
    "kind", ["bag", "bigru", "cnn", "multilevel", "self_attention"]
)
def test_encoders_from_scratch_have_an_estimate(kind: str) -> None:
    found = estimate(config("eurlex57k_bigru", f"model.encoder={{kind: {kind}}}"), SIZE)
    assert found.trained == found.parameters
    assert found.memory[ACTIVATIONS] > 0


def minilm(*overrides: str) -> RunConfig:
    return config(
        "eurlex57k_attention",
        "finetune.sampled_labels=null",
        "distributed.workers=0",
        *overrides,
    )


def labels_of(settings: RunConfig, size: Size):
    return label_memory(settings, meta_classifier(settings, size), size)


@pytest.mark.parametrize(
    "head", ["model.head={kind: label_attention, width: 64}", "model.head={kind: flat}"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tables_are_those_of_the_head(head: str, dtype: str) -> None:
    settings = minilm(head, f"model.head.row_dtype={dtype}")
    tables = settings.model.head.build(384, 500).label_tables().values()
    found = labels_of(settings, Size(longest=256, labels=500))
    assert found[TABLES] == sum(t.nbytes for t in tables)
    numbers, documents = (
        sum(t.numel() for t in tables),
        settings.finetune.tokens_per_micro_batch // 256,
    )
    assert found[MOMENTS] == 12 * numbers + 4 * 500 * len(
        tables
    )  # gradient, AdamW's two moments, a row's steps
    assert found[LOGITS] == 12 * documents * 500


def test_replicas_take_as_much_of_each_worker_as_of_one_process() -> None:
    one, two = (minilm(f"distributed.workers={workers}") for workers in (1, 2))
    few, many = Size(longest=256, labels=500), Size(longest=256, labels=10_000)
    assert labels_of(two, few) == labels_of(one, few)
    assert labels_of(two, many)[TABLES] == labels_of(one, many)[TABLES] / 2


@pytest.mark.parametrize("kind", ["lazy_adam", "rowwise_adagrad"])
def test_state_of_row_wise_optimizers_is_what_they_hold(kind: str) -> None:
    settings = minilm("finetune.sampled_labels=32", ROW_WISE % kind)
    head = settings.model.head.build(384, 500)
    assert settings.finetune.label_optimizer is not None
    optimizer = settings.finetune.label_optimizer.build(
        list(head.label_tables().values())
    )
    for table in head.label_tables().values():
        table.grad = torch.zeros_like(table)
    optimizer.step()
    states = [
        t
        for state in optimizer.state.values()
        for t in state.values()
        if isinstance(t, torch.Tensor)
    ]
    gradients = 4 * 32 * sum(t.numel() for t in head.label_tables().values()) / 500
    found = labels_of(settings, Size(longest=256, labels=500))
    assert found[MOMENTS] - gradients == sum(t.nbytes for t in states)


@pytest.mark.parametrize("parts", ["[attention, values, rows]", "[rows]", "[]"])
def test_planting_counts_where_its_sums_are_larger_than_what_trains(parts: str) -> None:
    size = Size(longest=256, labels=1_000_000, vocab_size=30_522)
    sampled = minilm(
        "finetune.sampled_labels=32",
        ROW_WISE % "rowwise_adagrad",
        f"plant.parts={parts}",
    )
    width, rows = (
        384,
        sampled.model.head.build(384, 10).label_tables()["weights"].shape[1],
    )
    sums = [*PrototypeSums(size.labels, rows, META).buffers()] if parts != "[]" else []
    projections = (
        PlantSums(size.labels, size.vocab_size, width, META).buffers()
        if "values" in parts
        else []
    )
    needed = sum(t.nbytes for t in (*sums, *projections)) + (
        4 * size.labels * rows if sums else 0
    )  # and the rows
    found = estimate(sampled, size).memory
    training = sum(
        found[name]
        for name in (
            "gradients",
            "optimizer state",
            "exchange buffers",
            ROWS,
            ACTIVATIONS,
        )
    )
    assert found.get(PLANTING, 0.0) == pytest.approx(
        max(0.0, needed - training), rel=0.01
    )
    assert PLANTING not in estimate(sampled, replace(size, labels=1_000)).memory


def test_what_is_advised_for_a_large_label_set_takes_less_at_each_step() -> None:
    advice = (
        "finetune.sampled_labels=512",
        ROW_WISE % "rowwise_adagrad",
        "model.head.row_dtype=bfloat16",
    )
    flat = "model.head={kind: flat, row_dtype: bfloat16}"
    steps = [*(advice[:count] for count in range(4)), (*advice[:2], flat)]
    totals = [
        sum(labels_of(minilm(*one), Size(longest=256, labels=1_000_000)).values())
        for one in steps
    ]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == len(totals)


def test_settings_are_advised_only_where_the_label_set_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = Size(longest=200, labels=1_000_000)
    memory = type("Memory", (), {"available": 64 * 2**30, "total": 64 * 2**30})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert len(label_lines(minilm(), size)) == 1
    memory.available = 4 * 2**30
    lines = label_lines(minilm(), size)
    assert "1,000,000 labels take" in lines[0]
    assert "4.0 GiB" in lines[1]
    advised = [word.rstrip(",") for word in shlex.split(lines[1]) if "=" in word]
    assert advised[0] == "finetune.sampled_labels=512"
    minilm("plant.parts=[]", *advised[:-1])
    minilm("plant.parts=[]", advised[-1])


def test_only_rows_that_a_step_touches_are_counted() -> None:
    size, planted = Size(longest=200, labels=200_000), "plant.parts=[]"
    dense = estimate(minilm(planted), size)
    sparse = estimate(
        minilm(planted, "finetune.sampled_labels=512", ROW_WISE % "rowwise_adagrad"),
        size,
    )
    assert sparse.memory[ROWS] < 0.01 * dense.memory[ROWS]
    assert sparse.memory[ACTIVATIONS] < dense.memory[ACTIVATIONS]
    assert sparse.peak < dense.peak / 2
