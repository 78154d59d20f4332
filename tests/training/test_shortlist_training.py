"""Stage 2 on some of the labels: mined negatives, row-wise updates of label tables, both in the real loop."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.row_shards import RowShard
from xmtc.distributed.rowwise_config import LazyAdamConfig, RowwiseAdagradConfig
from xmtc.distributed.strategy import ParameterGroup, Strategy
from xmtc.errors import CheckpointError, ConfigError
from xmtc.models.heads.base import Head
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.pipeline import prepare_stage
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.run_stage import run_stage
from xmtc.training.loop import Loop

MINING = "finetune.mining={candidates: 2, uniform: 1, refresh_steps: 4}"
LAZY_ADAM = "finetune.label_optimizer={kind: lazy_adam, learning_rate: 0.01}"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return tiny_runs.write_config(tmp_path_factory.mktemp("shortlist"))


def load(path: Path, name: str, *overrides: str) -> RunConfig:
    settings = (
        "plant.parts=[]",
        "track.checkpoint_every_steps=3",
        f"name={name}",
        *overrides,
    )
    return tiny_runs.load(path, *settings)


def finetune(config: RunConfig) -> Path:
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    prepare_stage(config)
    run_stage("finetune", config, paths)
    return paths.root


def test_mining_learns_and_logs_how_it_goes(path):
    root = finetune(load(path, "mined", MINING, LAZY_ADAM))
    logged = [m for m in tiny_runs.metrics(root) if "mine/recall" in m]
    losses = [m["train/loss"] for m in logged]
    assert losses[-1] < 0.7 * losses[0]
    assert all(0 <= m["mine/recall"] <= 1 for m in logged)
    assert [m["mine/age_steps"] for m in logged][:6] == [
        0,
        1,
        2,
        3,
        2,
        3,
    ]  # refreshed every half of 4 steps
    for name in (
        "labels",
        "dropped_positive",
        "dropped_duplicate",
        "dropped_missing",
        "build_s",
        "query_ms",
    ):
        assert all(m[f"mine/{name}"] >= 0 for m in logged)


def test_a_flat_head_is_mined_too(path):
    root = finetune(load(path, "flat", MINING, "model.head={kind: flat}"))
    assert tiny_runs.losses(root, "finetune")


@pytest.mark.parametrize(
    "optimizer", [LAZY_ADAM, "finetune.label_optimizer={kind: rowwise_adagrad}"]
)
def test_killed_and_resumed_with_label_tables_is_exact(path, monkeypatch, optimizer):
    kind = optimizer.split("kind: ")[1].split(",")[0].strip("}")
    settings = (optimizer, "finetune.sampled_labels=4")
    undisturbed = finetune(load(path, f"undisturbed_{kind}", *settings))
    config = load(path, f"killed_{kind}", *settings)
    killed(config, monkeypatch, 7)
    root = finetune(config)
    assert tiny_runs.losses(root, "finetune") == tiny_runs.losses(
        undisturbed, "finetune"
    )
    best, expected = (
        load_file(run / "checkpoints" / "best.safetensors")
        for run in (root, undisturbed)
    )
    assert all(torch.equal(best[name], expected[name]) for name in expected)


def test_tables_may_be_all_that_trains(path, monkeypatch):
    """A flat head over a frozen encoder has nothing else; in the second phase the encoder has."""
    flat = (
        "model.head={kind: flat}",
        "finetune.label_optimizer={kind: rowwise_adagrad}",
        "finetune.sampled_labels=5",
    )
    undisturbed = finetune(load(path, "flat_tables", *flat))
    config = load(path, "flat_tables_killed", *flat)
    for killed_at in (7, 13):  # in each phase
        killed(config, monkeypatch, killed_at)
    losses = tiny_runs.losses(finetune(config), "finetune")
    assert losses == tiny_runs.losses(undisturbed, "finetune")
    assert losses[10] < losses[1]


def test_too_few_sampled_labels_are_warned_of_once(path, caplog):
    config = load(
        path, "too_few", "finetune.sampled_labels=2", "finetune.phases=[{epochs: 1}]"
    )
    with caplog.at_level("WARNING", "xmtc"):
        finetune(config)
    warnings = [
        record.getMessage()
        for record in caplog.records
        if "finetune.sampled_labels: 2" in record.message
    ]
    assert len(warnings) == 1
    assert "this worker draws 2, not more than its 4 labels" in warnings[0]
    assert "ignores all others; raise it" in warnings[0]


def killed(config: RunConfig, monkeypatch, at: int) -> None:
    """Fine-tune until this many steps are done."""

    def boom():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        step = Loop._step
        patch.setattr(
            Loop,
            "_step",
            lambda self, *rest: boom() if rest[3].step == at else step(self, *rest),
        )
        with pytest.raises(KeyboardInterrupt):
            finetune(config)


def one_process() -> Strategy:
    return DistributedConfig().build_strategy(torch.device("cpu"))


def tables_of(head: Head) -> list[RowShard]:
    """The label tables of a head, all rows in this process."""
    for name, table in head.label_tables().items():
        setattr(head, name, RowShard.of(table))
    return list(head.label_tables().values())


def step_on(head, optimizer, hidden, shortlist) -> None:
    """One step of one process with label tables."""
    strategy = one_process()
    tables = tables_of(head)
    rest = [p for p in head.parameters() if all(p is not table for table in tables)]
    head.sparse_gradients = True
    rows = ParameterGroup(
        "label_tables", tables, optimizer.learning_rate, 0.0, optimizer
    )
    module = strategy.prepare(head, [ParameterGroup("rest", rest, 1e-3, 0.01), rows])
    strategy.set_learning_rates([1e-3, 0.1])
    mask = torch.ones(hidden.shape[:2], dtype=torch.bool)
    strategy.backward(module(hidden, mask, shortlist).square().sum())
    assert strategy.step(1.0) > 0
    strategy.close()
    assert all(p.grad is None for p in head.parameters())


@pytest.mark.parametrize("row_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", [RowwiseAdagradConfig(), LazyAdamConfig()])
def test_a_step_changes_the_rows_of_its_labels_and_no_other(row_dtype, optimizer):
    torch.manual_seed(0)
    head = LabelAttentionConfig(width=8, heads=2, row_dtype=row_dtype).build(6, 40)
    before = {name: p.detach().clone() for name, p in head.named_parameters()}
    step_on(head, optimizer, torch.randn(3, 4, 6), torch.tensor([3, 17, 39]))
    for name in ("queries", "weights", "bias"):
        changed = (getattr(head, name) != before[name]).view(40, -1).any(1)
        assert changed.nonzero().flatten().tolist() == [3, 17, 39]
    assert not torch.equal(head.key_projection.weight, before["key_projection.weight"])


def test_a_gradient_that_is_not_finite_changes_nothing():
    head = FlatConfig().build(6, 10)
    strategy = one_process()
    extra = torch.nn.Linear(6, 6)
    model = torch.nn.ModuleList([head, extra])
    rows = ParameterGroup("label_tables", tables_of(head), 0.1, 0.0, LazyAdamConfig())
    strategy.prepare(
        model, [ParameterGroup("rest", list(extra.parameters()), 0.1, 0.0), rows]
    )
    head.sparse_gradients = True
    before = head.weights.detach().clone()
    hidden = extra(torch.full((1, 2, 6), float("inf")))
    strategy.backward(
        head(hidden, torch.ones(1, 2, dtype=torch.bool), torch.tensor([2])).sum()
    )
    assert not torch.tensor(strategy.step(1.0)).isfinite()
    assert torch.equal(head.weights, before)
    assert head.weights.grad is None


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    head = LabelAttentionConfig(width=8, heads=2).build(6, 10)

    tables = tables_of(head)

    def strategy(optimizer) -> Strategy:
        made = one_process()
        rows = ParameterGroup(
            "label_tables", tables, optimizer.learning_rate, 0.0, optimizer
        )
        made.prepare(
            head,
            [
                ParameterGroup(
                    "rest", list(head.key_projection.parameters()), 0.1, 0.0
                ),
                rows,
            ],
        )
        return made

    made = strategy(LazyAdamConfig())
    made.save(tmp_path)
    made.close()
    other = strategy(RowwiseAdagradConfig())
    with pytest.raises(CheckpointError, match="optimizer differ from this run's"):
        other.load(tmp_path)
    other.close()
    next(tmp_path.glob("label_rows-*")).unlink()
    with pytest.raises(CheckpointError, match=r"label_rows-\*"):
        strategy(LazyAdamConfig()).load(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((MINING, "finetune.sampled_labels=4"), "leave sampled_labels out"),
        (
            (MINING, "finetune.loss={kind: cross_entropy}"),
            "mining: a softmax needs every label",
        ),
        (
            (
                "data.task=single_label",
                "finetune.loss={kind: cross_entropy}",
                "finetune.metric=accuracy",
                LAZY_ADAM,
            ),
            "label_optimizer: a softmax needs every label",
        ),
    ],
)
def test_settings_that_exclude_each_other_are_refused(path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        load(path, "refused", *overrides)


def test_a_row_wise_optimizer_is_for_label_rows():
    strategy = one_process()
    head = FlatConfig().build(6, 10)
    rows = ParameterGroup(
        "label_tables", list(head.label_tables().values()), 0.1, 0.0, LazyAdamConfig()
    )
    with pytest.raises(ConfigError, match="are for label rows"):
        strategy.prepare(head, [rows])
