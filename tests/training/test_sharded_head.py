"""Label rows split over the ranks: stage 2 goes as with whole tables, through checkpoints and other world sizes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from gloo import run_gloo
from xmtc.distributed.collectives import barrier, rank_and_world_size
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategy import ParameterGroup
from xmtc.errors import CheckpointError, ConfigError
from xmtc.losses.base import Targets
from xmtc.losses.config import BinaryCrossEntropyConfig
from xmtc.models.classifier import Classifier
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.pipeline import prepare_stage
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.run_stage import run_stage
from xmtc.training.loop import Loop
from xmtc.training.sharded_head import ShardedHead

LABELS, WIDTH, K = 23, 12, 7  # an odd number: the ranks' shares differ
HEADS = {
    "label_attention": LabelAttentionConfig(width=8, heads=2, dropout=0.0),
    "flat": FlatConfig(dropout=0.0),
}
STRATEGIES = {
    "ddp": "{kind: ddp}",
    "zero2": "{kind: deepspeed, stage: 2}",
    # smaller parameters would stay whole on every rank: all of this model's
    "zero3": "{kind: deepspeed, stage: 3, extra: {zero_optimization: {stage3_param_persistence_threshold: 0}}}",
}
LENGTHS = ([5, 3], [7, 2, 4])  # tokens of each rank's documents, more of them on rank 1


class Encoder(torch.nn.Module):
    """Takes hidden states for what they are."""

    width = WIDTH

    def layers(self) -> list[torch.nn.Module]:
        return [torch.nn.Linear(WIDTH, WIDTH)]


def classifier(kind: str) -> Classifier:
    torch.manual_seed(3)
    return Classifier(Encoder(), HEADS[kind].build(WIDTH, LABELS), LABELS)  # pyright: ignore[reportArgumentType]


def documents(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = LENGTHS[rank]
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randn(*mask_BT.shape, WIDTH, generator=torch.Generator().manual_seed(rank)) * mask_BT[
        ..., None
    ], mask_BT


def best_of_both(kind: str) -> tuple[tuple[torch.Tensor, torch.Tensor], int]:
    rank, _ = rank_and_world_size()
    sharded = ShardedHead(classifier(kind))
    return sharded.top_k(*documents(rank), K), len(sharded.head.bias)


@pytest.mark.parametrize("kind", HEADS)
def test_the_best_labels_are_merged_from_all_ranks(kind: str, tmp_path: Path) -> None:
    ranks = run_gloo(best_of_both, 2, tmp_path, kind)
    assert [rows for _, rows in ranks] == [11, 12]
    for rank, ((ids_BK, values_BK), _) in enumerate(ranks):
        expected = classifier(kind).head(*documents(rank)).topk(K)
        assert torch.equal(ids_BK, expected.indices)
        torch.testing.assert_close(values_BK, expected.values.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_one_process_has_all_rows(kind: str) -> None:
    x_BTD, mask_BT = documents(0)
    targets = Targets(torch.tensor([0]), torch.tensor([20]), torch.ones(2))
    model = classifier(kind)
    whole = BinaryCrossEntropyConfig().build()(model.head(x_BTD, mask_BT), targets)
    sharded = ShardedHead(model).loss(BinaryCrossEntropyConfig().build(), x_BTD, mask_BT, targets)
    torch.testing.assert_close(sharded.sum, whole.sum)
    torch.testing.assert_close(sharded.count, whole.count)


# --- the real stage ---------------------------------------------------------------------------------------------------

HEAD_SETTINGS = {"label_attention": (), "flat": ("model.head={kind: flat, dropout: 0.0}",)}
KILLED_AT = 7  # one step after a checkpoint, in the middle of an epoch


def load(path: Path, name: str, *overrides: str) -> RunConfig:
    settings = ("plant.enabled=false", "track.checkpoint_every_steps=3", f"name={name}")
    return tiny_runs.load(path, *settings, *overrides)


def split(path: Path, head: str, strategy: str, name: str, workers: int = 2) -> RunConfig:
    share = f"distributed={{workers: {workers}, shard_labels: true, strategy: {STRATEGIES[strategy]}, threads: 1}}"
    return load(path, name, share, *HEAD_SETTINGS[head])


def stages(config: RunConfig, *names: str) -> Path:
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    for name in names:
        run_stage(name, config, paths)
    return paths.root


def train_all(path: Path) -> None:
    """Every head and strategy in the same two processes."""
    for head in HEADS:
        for strategy in STRATEGIES:
            names = ("finetune", "evaluate") if (head, strategy) == ("flat", "zero2") else ("finetune",)
            stages(split(path, head, strategy, f"{head}-{strategy}"), *names)


def train_killed(path: Path) -> None:
    """Both ranks die before the same step."""
    step = Loop._step
    Loop._step = lambda self, *rest: boom() if rest[3].step == KILLED_AT else step(self, *rest)
    for head, strategy in (("label_attention", "ddp"), ("flat", "zero2")):
        with pytest.raises(KeyboardInterrupt):
            stages(split(path, head, strategy, f"{head}-killed"), "finetune")
        barrier()


def train_resumed(path: Path) -> None:
    """On, with another number of ranks and another strategy."""
    stages(split(path, "label_attention", "zero2", "label_attention-killed", workers=3), "finetune")
    stages(split(path, "flat", "ddp", "flat-killed", workers=3), "finetune")


def boom() -> Any:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    path = tiny_runs.write_config(tmp_path_factory.mktemp("sharded"))
    prepare_stage(load(path, "corpus"))
    return path


@pytest.fixture(scope="module")
def whole(path) -> dict[str, Path]:
    """The same stage in one process, with whole tables."""
    return {head: stages(load(path, head, *HEAD_SETTINGS[head]), "finetune") for head in HEADS}


@pytest.fixture(scope="module")
def trained(path, tmp_path_factory) -> Path:
    run_gloo(train_all, 2, tmp_path_factory.mktemp("two"), path, timeout_s=240)
    return path.parent / "runs"


def dev(run: Path) -> list[dict[str, float]]:
    found = [m for m in tiny_runs.metrics(run) if "dev/ndcg@5" in m]
    return [{k: v for k, v in m.items() if k.startswith("dev/") and k != "dev/seconds"} for m in found]


def check_same(run: Path, expected: Path) -> None:
    found, wanted = tiny_runs.losses(run, "finetune"), tiny_runs.losses(expected, "finetune")
    assert list(found) == list(wanted)
    assert list(found.values()) == pytest.approx(list(wanted.values()), rel=2e-4)
    for a, b in zip(dev(run), dev(expected), strict=True):
        assert a == pytest.approx(b, rel=2e-3, abs=1e-6)
    weights, whole = (load_file(root / "checkpoints" / "best.safetensors") for root in (run, expected))
    for name, tensor in whole.items():
        torch.testing.assert_close(weights[name], tensor, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks_train_and_measure_as_one(whole, trained, head, strategy) -> None:
    run = trained / f"{head}-{strategy}"
    check_same(run, whole[head])
    norms = [[m["train/grad_norm"] for m in tiny_runs.metrics(r) if "train/loss" in m] for r in (run, whole[head])]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_the_exported_head_is_whole(trained) -> None:
    head = load_file(trained / "flat-zero2" / "model" / "head.safetensors")
    best = load_file(trained / "flat-zero2" / "checkpoints" / "best.safetensors")
    assert {name: t.shape for name, t in head.items()} == {"weights": (6, 32), "bias": (6,)}
    assert all(torch.equal(head[name], best[f"classifier.head.{name}"]) for name in head)


@pytest.mark.parametrize("head", HEADS)
def test_killed_on_two_ranks_and_resumed_on_three(whole, path, tmp_path_factory, head) -> None:
    run = path.parent / "runs" / f"{head}-killed"
    if not run.exists():
        run_gloo(train_killed, 2, tmp_path_factory.mktemp("killed"), path, timeout_s=120)
        run_gloo(train_resumed, 3, tmp_path_factory.mktemp("resumed"), path, timeout_s=120)
    check_same(run, whole[head])


def test_split_and_whole_checkpoints_are_not_mixed_up(path, whole) -> None:
    del whole
    config = load(path, "mixed", "distributed.shard_labels=true")
    root = stages(config, "finetune")
    strategy = DistributedConfig().build_strategy(torch.device("cpu"))
    model = torch.nn.Linear(2, 2)
    strategy.prepare(model, [ParameterGroup("all", list(model.parameters()), 0.1, 0.0)])
    with pytest.raises(CheckpointError, match="shard_labels: true"):
        strategy.load(sorted((root / "checkpoints").glob("step_*"))[-1])


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("finetune.mining={candidates: 2}", "mining"),
        ("finetune.sampled_labels=4", "sampled_labels"),
        ("finetune.loss={kind: asymmetric_focal, hard_negatives: 3}", "hard_negatives"),
        ("model.head.row_dtype=bfloat16", "row_dtype"),
    ],
)
def test_what_needs_other_workers_rows_is_refused(path, setting, named) -> None:
    with pytest.raises(ConfigError, match=named):
        load(path, "refused", "distributed.shard_labels=true", setting)


def test_a_softmax_over_rows_of_several_workers_is_refused(path) -> None:
    settings = ["data.task=single_label", "finetune.loss={kind: cross_entropy}", "finetune.metric=accuracy"]
    with pytest.raises(ConfigError, match="a softmax needs every label"):
        load(path, "refused", "distributed.shard_labels=true", *settings)
