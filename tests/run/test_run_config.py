"""What no section of the configuration can see alone."""

from pathlib import Path

import pytest

from xmtc.config.load import load_config
from xmtc.errors import ConfigError
from xmtc.planting.plan import planting_plan
from xmtc.preflight.configuration import without_effect
from xmtc.run.config import RunConfig
from xmtc.run.label_rows import shares_rows

CONFIGS = Path(__file__).parents[2] / "configs"
FLAT = "model.head={kind: flat}"


def test_zero_3_with_quantised_weights_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"quantize: nf4 .*distributed\.strategy\.stage: 3"
    ):
        load_config(
            RunConfig,
            CONFIGS / "mimic4_mistral.yaml",
            ["distributed.strategy.stage=3"],
        )


def test_zero_3_with_quantised_weights_under_several_layers_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"quantize: nf4 .*distributed\.strategy\.stage: 3"
    ):
        load_config(
            RunConfig,
            CONFIGS / "mimic4_mistral.yaml",
            [
                "distributed.strategy.stage=3",
                "model.encoder={kind: maxpool, base: {kind: hugging_face, quantize: nf4, lora: {}}}",
            ],
        )


@pytest.mark.parametrize(
    ("file", "metric", "words"),
    [
        (
            "sentiment.yaml",
            "acuracy",
            r"'acuracy': .*single_label.*; did you mean 'accuracy'\? known: accuracy, p@1",
        ),
        ("sentiment.yaml", "docs", r"'docs': .* known: "),
        ("sentiment.yaml", "ece", r"'ece': .* known: "),
        ("quickstart.yaml", "accuracy", r"'accuracy': .*multi_label task.* known: p@1"),
        ("quickstart.yaml", "micro_auc", r"'micro_auc': .* known: .*micro_f1"),
    ],
)
def test_a_metric_that_picks_no_epoch_is_refused(file, metric, words) -> None:
    with pytest.raises(ConfigError, match=rf"finetune\.metric: {words}"):
        load_config(RunConfig, CONFIGS / file, [f"finetune.metric={metric}"])


@pytest.mark.parametrize(
    ("file", "kind", "words"),
    [
        (
            "sentiment.yaml",
            "asymmetric_focal",
            "fits the probability of each label separately",
        ),
        (
            "sentiment.yaml",
            "binary_cross_entropy",
            "fits the probability of each label separately",
        ),
        (
            "mimic4_layout_minilm.yaml",
            "cross_entropy",
            "needs exactly one label on each document",
        ),
    ],
)
def test_a_loss_of_the_other_task_is_refused(file, kind, words) -> None:
    with pytest.raises(ConfigError, match=rf"finetune\.loss\.kind: {kind} {words}"):
        load_config(RunConfig, CONFIGS / file, [f"finetune.loss={{kind: {kind}}}"])


@pytest.mark.parametrize(
    ("encoder", "key"),
    [
        ("{dtype: bfloat16}", "model.encoder"),
        ("{kind: maxpool, base: {dtype: bfloat16}}", "model.encoder.base"),
    ],
)
def test_weights_that_a_later_phase_cannot_train_are_refused(
    encoder: str, key: str
) -> None:
    def load(last: str, *others: str) -> RunConfig:
        phases = (
            f"finetune.phases=[{{epochs: 1}}, {{epochs: 1, encoder_layers: {last}}}]"
        )
        return load_config(
            RunConfig,
            CONFIGS / "quickstart.yaml",
            [f"model.encoder={encoder}", phases, *others],
        )

    with pytest.raises(ConfigError, match=rf"{key}\.dtype: bfloat16"):
        load("1")
    load("0")
    load("1", f"{key}.lora={{}}")


@pytest.mark.parametrize(
    "setting", ["callbacks=[{kind: profiler}]", "label_optimizer={kind: lazy_adam}"]
)
def test_settings_of_stage_1_without_its_epochs_are_refused(setting) -> None:
    name, file = setting.split("=")[0], CONFIGS / "quickstart.yaml"
    with pytest.raises(ConfigError, match=rf"plant: {name}: .*closed_form"):
        load_config(RunConfig, file, [f"plant.{setting}"])
    load_config(RunConfig, file, [f"plant.{setting}", "plant.method=ranking"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "finetune.phases=[{epochs: 3, encoder_learning_rate: 1e-4}]",
            r"phases\.0: encoder_learning_rate: ",
        ),
        (
            "finetune.phases=[{epochs: 3, layer_decay: 0.5}]",
            r"phases\.0: layer_decay: .*encoder_layers: 0",
        ),
    ],
)
def test_settings_without_effect_beside_others_are_refused(setting, words) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(RunConfig, CONFIGS / "quickstart.yaml", [setting])


def test_a_decision_of_a_single_label_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.decision: "):
        load_config(RunConfig, CONFIGS / "sentiment.yaml", ["evaluate.decision=macro"])


NONE, SCORERS = "model.head={kind: none}", "model.scorers=[{kind: linear}]"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], []),
        (["plant.parts=[]", "distributed.strategy={kind: single}"], []),
        (
            ["distributed.strategy={kind: ddp}", "distributed.address=auto"],
            ["distributed.strategy, address"],
        ),
        (["distributed.strategy={kind: ddp}", "distributed.workers=1"], []),
        (
            [NONE, SCORERS, "model.label_text=true"],
            ["nothing trains: no effect of finetune, model.label_text"],
        ),
        (
            [NONE, SCORERS, "evaluate.shortlist=9"],
            ["nothing trains: no effect of finetune, evaluate.shortlist"],
        ),
        (
            [FLAT, "plant.parts=[attention, rows]"],
            ["plant.parts: attention: no effect on model.head.kind: flat"],
        ),
        (
            ["plant={loss: {kind: listnet}, batch_size: 8}"],
            ["closed_form: no effect of plant.batch_size, loss"],
        ),
        (
            ["model.scorers=[]", "evaluate.fit_on_dev=true"],
            ["no effect of evaluate.fit_on_dev"],
        ),
        (
            ["model.encoder.lora={}", "finetune.phases=[{epochs: 1}]"],
            ["model.encoder.lora: "],
        ),
        (
            [
                "model.encoder.lora={}",
                "finetune.phases=[{epochs: 1, encoder_layers: 1}]",
            ],
            [],
        ),
    ],
)
def test_settings_without_effect_on_this_run_are_named(overrides, words) -> None:
    found = list(
        without_effect(load_config(RunConfig, CONFIGS / "quickstart.yaml", overrides))
    )
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


def test_stage_1_needs_a_head_with_attention_by_label() -> None:
    flat, file = "model.head={kind: flat}", CONFIGS / "quickstart.yaml"
    with pytest.raises(ConfigError, match=r"plant\.method: .*model\.head\.kind"):
        load_config(RunConfig, file, [flat, "plant.method=ranking"])
    config = load_config(RunConfig, file, [flat])
    assert planting_plan(config.model, config.plant).parts == {"rows"}


@pytest.mark.parametrize(
    "override", ["name=..", "name=.", "name=.hidden", f"seed={2**32}"]
)
def test_names_of_other_folders_and_seeds_that_libraries_refuse(override) -> None:
    with pytest.raises(ConfigError, match=override.split("=")[0]):
        load_config(RunConfig, CONFIGS / "quickstart.yaml", [override])


ATTENTION = ("finetune.sampled_labels=null", "finetune.tokens_per_micro_batch=1000")


@pytest.mark.parametrize(
    ("settings", "labels", "shared"),
    [
        ((), 1000, False),
        ((), 1001, True),  # more labels than a micro-batch has tokens
        (("finetune.sampled_labels=32",), 1000, True),
        (("finetune.label_optimizer={kind: lazy_adam}",), 1000, True),
        (("plant={method: ranking, label_optimizer: {kind: lazy_adam}}",), 1000, True),
        (("model.head.row_dtype=bfloat16",), 1000, True),
        ((FLAT,), 1000, True),
    ],
)
def test_label_attention_has_replicas_of_few_rows_whatever_the_number_of_workers(
    settings: tuple[str, ...], labels: int, shared: bool
) -> None:
    config = load_config(
        RunConfig, CONFIGS / "eurlex57k_attention.yaml", [*ATTENTION, *settings]
    )
    assert [shares_rows(config, labels, workers) for workers in (1, 2, 8)] == [
        shared
    ] * 3


def test_a_softmax_has_replicas_where_there_are_several_workers() -> None:
    softmax = (
        "finetune.loss.kind=cross_entropy",
        "finetune.metric=accuracy",
        "data.task=single_label",
    )
    config = load_config(
        RunConfig, CONFIGS / "eurlex57k_attention.yaml", [*ATTENTION, FLAT, *softmax]
    )
    assert [shares_rows(config, 500, workers) for workers in (1, 2)] == [True, False]
