"""The estimate against what tiny models are measured to take, and against published sizes of large ones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from xmtc.config.load import load_config
from xmtc.data.collate import Batch
from xmtc.errors import ConfigError
from xmtc.estimate.estimate import Workload, _weights, backbone_shape, estimate, micro_batch, print_estimate
from xmtc.estimate.simulate import meta_classifier
from xmtc.run.config import RunConfig

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
LOAD = Workload(documents=1000, dev_documents=100, tokens=200, longest=600, labels=300, vocab_size=500)


def config(name: str = "smoke_llama", *overrides: str) -> RunConfig:
    return load_config(RunConfig, ROOT / f"configs/{name}.yaml", overrides)


def tiny(*overrides: str, documents: int = 3) -> RunConfig:
    shape = f"model.encoder.from_config={json.dumps(SHAPE)}"
    tokens = f"finetune.tokens_per_micro_batch={600 * documents}"
    return config("smoke_llama", shape, tokens, "data.max_length=600", *overrides)


def measured_peak(settings: RunConfig) -> int:
    """Bytes that PyTorch's own profiler sees allocated at most during forward and backward."""
    shapes = micro_batch(settings, LOAD, 256)
    model = settings.model.build(LOAD.vocab_size, LOAD.labels)
    model.train()
    ids_WU = torch.randint(LOAD.vocab_size, (shapes.windows, shapes.window_tokens))
    ids_BT = torch.randint(LOAD.vocab_size, (shapes.documents, shapes.tokens))
    mask_WU = torch.ones_like(ids_WU, dtype=torch.bool)
    mask_WU[-1, 200:] = not shapes.padded
    batch = Batch(
        documents_B=torch.arange(shapes.documents),
        token_ids_BT=ids_BT,
        mask_BT=torch.ones_like(ids_BT, dtype=torch.bool),
        input_ids_WU=ids_WU,
        attention_mask_WU=mask_WU,
        position_BT=torch.zeros_like(ids_BT),
        rows_P=torch.zeros(1, dtype=torch.long),
        labels_P=torch.zeros(1, dtype=torch.long),
        weight_B=torch.ones(shapes.documents),
    )
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        torch.nn.functional.softplus(model(batch)).mean().backward()
    now = peak = 0
    for event in recorded.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    gradients = sum(p.numel() * 4 for p in model.parameters() if p.grad is not None)
    return peak - gradients


@pytest.mark.parametrize("documents", [1, 3], ids=["unpadded", "padded"])
@pytest.mark.parametrize("overrides", [(), ("model.encoder.gradient_checkpointing=true",)], ids=["plain", "recompute"])
def test_activations_are_what_the_profiler_sees_to_within_15_percent(
    overrides: tuple[str, ...], documents: int
) -> None:
    torch.manual_seed(0)
    settings = tiny(*overrides, documents=documents)
    assert micro_batch(settings, LOAD, 256).padded == (documents > 1)
    found = estimate(settings, LOAD).memory["activations, head, logits"]
    ratio = found / measured_peak(settings)
    assert 0.85 <= ratio <= 1.15  # below 1 by the label-attention kernel's work space, some megabytes at most


def test_recomputing_takes_less_and_a_group_of_windows_least() -> None:
    plain, recompute, groups = (
        estimate(tiny(*overrides), LOAD).memory["activations, head, logits"]
        for overrides in (
            (),
            ("model.encoder.gradient_checkpointing=true",),
            ("model.encoder.gradient_checkpointing=true", "model.encoder.window_group=1"),
        )
    )
    assert groups < plain / 2
    assert recompute < plain / 2


def test_parameters_are_those_of_the_real_model() -> None:
    settings = tiny()
    model = settings.model.build(LOAD.vocab_size, LOAD.labels)
    found = estimate(settings, LOAD)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.trained == sum(p.numel() for p in model.parameters() if p.requires_grad)
    rows = sum(table.numel() for table in model.head.label_tables().values())
    assert found.memory["gradients"] * 2 == pytest.approx(4 * (found.trained - rows))  # ZeRO-2 on two workers
    assert found.memory["optimizer state"] * 2 == pytest.approx(12 * (found.trained - rows))
    assert found.steps == {"plant": 2 * 63, "finetune": 3 * 63}


def test_planting_without_epochs_has_no_steps_and_one_pass_over_the_encoder() -> None:
    head = "finetune.phases=[{epochs: 2}]"
    apart, epochs, rows, without = (
        estimate(tiny("plant.cache_hidden=false", "finetune.cache_hidden=false", head, *overrides), LOAD)
        for overrides in (
            (),
            ("plant.prototypes=false",),
            ("plant.epochs=0",),
            ("plant.epochs=0", "plant.prototypes=false"),
        )
    )
    one = without.flops / 2
    assert [round(found.flops / one) for found in (apart, epochs, rows)] == [2 + 2 + 1, 2 + 2, 2 + 1]
    assert apart.steps.keys() == epochs.steps.keys() == {"plant", "finetune"}
    assert rows.steps == without.steps == {"finetune": 2 * 63}
    cached = estimate(tiny("plant.epochs=0", head), LOAD)
    assert cached.flops == pytest.approx(one)


def test_strategies_divide_what_they_partition() -> None:
    alone = estimate(tiny("distributed.workers=0", "distributed.strategy=null"), LOAD).memory
    three = estimate(tiny("distributed.strategy.stage=3"), LOAD, workers=4).memory
    assert three["frozen weights"] * 4 == pytest.approx(alone["frozen weights"])
    assert three["gradients"] * 4 == pytest.approx(alone["gradients"])
    assert alone["exchange buffers"] == 0


def test_what_is_offloaded_to_a_disk() -> None:
    nvme = "offload_optimizer: nvme, offload_parameters: nvme, nvme_path: /scratch"
    found = estimate(tiny(f"distributed.strategy={{kind: deepspeed, stage: 3, {nvme}}}"), LOAD)
    assert found.offloaded == 16 * found.trained + 4 * found.parameters  # random weights are float32
    assert estimate(tiny(), LOAD).offloaded == 0


@pytest.mark.parametrize(
    ("name", "billions", "frozen_gib"),
    [("mimic4_llama3", 7.50, 14.0), ("mimic4_mistral", 7.11, 3.7), ("mimic4_phi3", 3.72, 6.9)],
)
def test_published_sizes(name: str, billions: float, frozen_gib: float) -> None:
    """Published sizes less the output layer, which a classifier has not: LLaMA-3-8B 8.03 B − 0.53 B, and so on."""
    settings = config(name)
    shape = meta_shape(settings)
    model = meta_classifier(settings.model, shape, int(shape["vocab_size"]), 8000)
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert sum(p.numel() for p in frozen) / 1e9 == pytest.approx(billions, rel=0.01)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert _weights(settings, model, trained, 1)["frozen weights"] / 2**30 == pytest.approx(frozen_gib, rel=0.05)


def meta_shape(settings: RunConfig) -> dict[str, object]:
    shape = backbone_shape(settings)
    assert shape is not None
    return shape


def test_hidden_states_on_disk_and_unknown_backbones() -> None:
    settings = tiny("plant.cache_hidden=true")
    assert estimate(settings, LOAD).disk["hidden states"] == 1100 * 200 * 128 * 4
    none = replace(settings, plant=replace(settings.plant, cache_hidden=False))
    none = replace(none, finetune=replace(none.finetune, cache_hidden=False))
    assert estimate(none, LOAD).disk["hidden states"] == 0
    assert estimate(none, LOAD).flops > estimate(settings, LOAD).flops
    with pytest.raises(ConfigError, match="nobody/knows is not on this machine, and its shape is unknown"):
        estimate(config("mimic4_llama3", "model.encoder.name=nobody/knows"), LOAD)


@pytest.mark.parametrize("kind", ["bag", "bigru", "cnn", "lstm", "multilevel", "self_attention"])
def test_encoders_from_scratch_have_an_estimate(kind: str) -> None:
    found = estimate(config("eurlex57k_bigru", f"model.encoder={{kind: {kind}}}"), LOAD)
    assert found.trained == found.parameters
    assert found.memory["activations, head, logits"] > 0
    assert (found.flops > 0) == (kind != "bag")  # a mean of embeddings multiplies nothing


def test_the_time_is_labelled_as_the_encoders_only(capsys) -> None:
    """A bag of embeddings multiplies nothing, and its run still takes time."""
    settings = config("eurlex57k_bigru", "model.encoder={kind: bag}")
    print_estimate(settings, estimate(settings, LOAD), 1.0, 0.5)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("time in the encoder: about 0 min")
    assert last.endswith("its attention and the head take additional time")
