"""The training loop by itself: interruptions of every kind, losses that are not finite, the best epoch's weights.

The stages run through `run_stage` on a tiny corpus; faults are put in by patching one step.
"""

import json
import math
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from xmtc.errors import TrainingError
from xmtc.losses.base import LossOutput
from xmtc.pipeline import mig_stage
from xmtc.planting.plan import planting_plan
from xmtc.planting.projections import PlantSums
from xmtc.planting.prototypes import PrototypeSums
from xmtc.planting.ranking_objective import PlantObjective
from xmtc.planting.sums import VectorSums
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages import plant
from xmtc.stages.run_stage import run_stage
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.loop import MAX_SKIPPED_STEPS, Loop

STAGES = ("plant", "finetune")
Fault = Callable[[], None]


class BoomError(RuntimeError):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("loop")


@pytest.fixture(scope="module")
def config(folder) -> RunConfig:
    return tiny_runs.load(
        tiny_runs.write_config(folder),
        "name=undisturbed",
        "track.checkpoint_every_steps=3",
    )


@pytest.fixture(scope="module")
def undisturbed(config) -> Path:
    return run(config)


def run(config: RunConfig, stages: Sequence[str] = STAGES) -> Path:
    """Stages in this process, without the bookkeeping of a whole run."""
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    mig_stage(config)
    for stage in stages:
        run_stage(stage, config, paths)
    return paths.root


def at_step(patch: pytest.MonkeyPatch, stage: str, step: int, fault: Fault) -> None:
    """Call `fault` when the loop is about to take `step` (from 1) of `stage`."""
    original = Loop._step

    def faulty(self, module, planned, batches, position, meter):
        if self.settings.name == stage and position.step + 1 == step:
            fault()
        return original(self, module, planned, batches, position, meter)

    patch.setattr(Loop, "_step", faulty)


def boom() -> None:
    raise BoomError


def same(one: Path, other: Path, stages: Sequence[str] = STAGES) -> None:
    """Same losses at every step, each logged once, and the same weights, bit by bit."""
    for stage in stages:
        assert tiny_runs.losses(one, stage) == tiny_runs.losses(other, stage)
        folder = "plant/checkpoints" if stage == "plant" else "checkpoints"
        best, expected = (
            load_file(root / folder / "best.safetensors") for root in (one, other)
        )
        assert best.keys() == expected.keys()
        assert all(torch.equal(best[name], expected[name]) for name in best)


@pytest.mark.parametrize(
    ("stage", "step"),
    [
        ("plant", 2),  # before the first checkpoint
        ("plant", 5),  # in the middle of an epoch, after the checkpoint of step 3
        ("finetune", 7),  # right after a checkpoint, in the middle of the second epoch
        (
            "finetune",
            11,
        ),  # the second phase's first step: its optimizer was never saved
        ("finetune", 15),  # in the middle of the second phase
    ],
)
def test_killed_at_a_step_and_resumed(config, undisturbed, monkeypatch, stage, step):
    config = replace(config, name=f"killed_{stage}_{step}")
    with monkeypatch.context() as patch:
        at_step(patch, stage, step, boom)
        with pytest.raises(BoomError):
            run(config)
    root = RunPaths.of(config).root
    run(config, STAGES if stage == "plant" else ["finetune"])
    same(root, undisturbed)


def test_a_resume_reads_the_same_spans(config, monkeypatch):
    settings = replace(config.finetune, crop=16, phases=config.finetune.phases[1:])
    spans, whole, killed = (
        replace(config, name=name, finetune=replace(settings, crop=crop))
        for name, crop in (("spans", 16), ("whole", None), ("killed_spans", 16))
    )
    with pytest.raises(ValueError, match="crop: a phase with encoder_layers: 0"):
        replace(config.finetune, crop=16)
    root = run(spans)
    assert tiny_runs.losses(root, "finetune") != tiny_runs.losses(
        run(whole), "finetune"
    )
    with monkeypatch.context() as patch:
        at_step(patch, "finetune", 5, boom)
        with pytest.raises(BoomError):
            run(killed)
    same(run(killed, ["finetune"]), root)


def test_killed_again_and_again(config, undisturbed, monkeypatch):
    """As on spot instances: each start gets a little further; also in the middle of dev evaluations."""
    config = replace(config, name="killed_often")
    run(config, ["plant"])
    for step in (4, 8, 12, 20):
        with monkeypatch.context() as patch:
            at_step(patch, "finetune", step, boom)
            with pytest.raises(BoomError):
                run(config, ["finetune"])
    with monkeypatch.context() as patch:
        patch.setattr(
            Loop, "_end_epoch", lambda *_: boom()
        )  # after the last step, before dev is measured
        with pytest.raises(BoomError):
            run(config, ["finetune"])
    same(run(config, ["finetune"]), undisturbed)


def test_a_finished_stage_runs_again_from_its_last_checkpoint(
    config, undisturbed, monkeypatch
):
    monkeypatch.setattr(Loop, "_step", lambda *_: pytest.fail("trains again"))
    before = tiny_runs.metrics(undisturbed)
    run(config, ["finetune"])
    assert tiny_runs.metrics(undisturbed) == before


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(
    config, undisturbed, monkeypatch
):
    config = replace(config, name="damaged")
    with monkeypatch.context() as patch:
        at_step(patch, "plant", 9, boom)
        with pytest.raises(BoomError):
            run(config, ["plant"])
    newest = max((RunPaths.of(config).root / "plant" / "checkpoints").glob("step_*"))
    assert newest.name == "step_00000006"
    for file in newest.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-8])
    same(run(config), undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_after_the_step_with_a_checkpoint(
    config, undisturbed, monkeypatch, number
):
    config = replace(config, name=f"signal_{number.name}")
    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        at_step(patch, "plant", 5, lambda: signal.raise_signal(number))
        with pytest.raises(
            KeyboardInterrupt, match="plant stopped after step 5, checkpoint written"
        ):
            run(config, ["plant"])
    assert signal.getsignal(number) is before
    root = RunPaths.of(config).root
    assert (root / "plant" / "checkpoints" / "step_00000005").is_dir()
    same(run(config, ["plant"]), undisturbed, ["plant"])


def test_a_signal_while_dev_is_measured_for_the_last_time_stops_the_stage(
    config, undisturbed, monkeypatch
):
    config = replace(config, name="signal_at_the_end")
    measure = Loop._end_epoch

    def interrupted(self, position):
        if position.epochs_done == 1:
            signal.raise_signal(signal.SIGINT)
        measure(self, position)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_end_epoch", interrupted)
        with pytest.raises(
            KeyboardInterrupt, match="plant stopped after step 10, checkpoint written"
        ):
            run(config, ["plant"])
    same(run(config, ["plant"]), undisturbed, ["plant"])


def test_killed_in_the_save_at_the_end_of_an_epoch_dev_is_logged_once(
    config, undisturbed, monkeypatch
):
    """A checkpoint is due after the epoch's last step, too: there must be none from before dev is measured."""
    config = replace(
        config,
        name="killed_at_the_end",
        track=replace(config.track, checkpoint_every_steps=5),
    )
    with monkeypatch.context() as patch:
        save = Loop._save
        patch.setattr(
            Loop,
            "_save",
            lambda self, position: (
                boom() if position.epochs_done else save(self, position)
            ),
        )
        with pytest.raises(BoomError):
            run(config, ["plant"])
    same(run(config, ["plant"]), undisturbed, ["plant"])
    dev = [
        m["step"]
        for m in tiny_runs.metrics(RunPaths.of(config).root)
        if "dev/ndcg@10" in m
    ]
    assert dev == [5, 10]


def test_a_checkpoint_of_another_corpus_is_left_behind(tmp_path, capsys):
    """The source has changed since: a model of the old documents would be exported as one of the new."""
    path = tiny_runs.write_config(tmp_path)
    run(tiny_runs.load(path))
    rows = [row | {"labels": row["labels"][:1]} for row in tiny_runs.documents(60)]
    tiny_runs.write_jsonl(tmp_path / "train.jsonl", rows)
    again = run(tiny_runs.load(path))
    said = capsys.readouterr().err
    for stage in STAGES:
        assert f"{stage}: starting from scratch: " in said
    same(again, run(tiny_runs.load(path, "name=fresh")))
    assert {p.name for p in (again / "checkpoints").iterdir()} == {
        "step_00000015",
        "step_00000020",
        "best.safetensors",
    }


@pytest.mark.parametrize(
    ("head", "sums"),
    [
        ("label_attention, width: 16, heads: 2", PlantSums),
        ("label_attention", PrototypeSums),
        ("flat", VectorSums),
    ],
)
def test_a_pass_that_is_killed_continues_from_its_sums(
    tmp_path, monkeypatch, head, sums
):
    plant = {
        "tokens_per_micro_batch": 300,
        "cache_hidden": False,
        "choose_documents": 0,
    }
    path = tiny_runs.write_config(tmp_path, plant=plant)
    settings = f"model.head={{kind: {head}}}", "track.checkpoint_every_minutes=1e-9"
    config = tiny_runs.load(path, *tiny_runs.pretrained(tmp_path), *settings)
    add, added, killed_after = sums.add, [], 3

    def counted(self, *arguments) -> None:
        added.append(arguments)
        add(self, *arguments)

    def killed(self, *arguments) -> None:
        if len(added) == killed_after:
            boom()
        counted(self, *arguments)

    monkeypatch.setattr(sums, "add", counted)
    whole = run(replace(config, name="whole"), ["plant"])
    batches = len(added)
    assert batches > killed_after
    added.clear()
    with monkeypatch.context() as patch:
        patch.setattr(sums, "add", killed)
        with pytest.raises(BoomError):
            run(config, ["plant"])
    root = run(config, ["plant"])
    assert len(added) == batches
    planted, expected = (
        load_file(one / "plant/head.safetensors") for one in (root, whole)
    )
    assert all(torch.equal(planted[name], expected[name]) for name in expected)
    assert not [*root.glob("plant/*/step_*")]


@pytest.mark.parametrize("best", [set(), {"values"}, {"attention", "values"}])
def test_dev_chooses_what_is_planted(tmp_path, monkeypatch, capsys, best):
    """The trials leave no trace: the head is the one that these parts alone give."""
    path = tiny_runs.write_config(tmp_path, plant={"tokens_per_micro_batch": 300})
    encoder, subsets = (
        tiny_runs.pretrained(tmp_path),
        [{"attention", "values"}, {"attention"}, {"values"}, set()],
    )
    figures = iter([0.5 if subset == best else 0.1 for subset in subsets])
    parts = f"plant.parts={sorted({*best, 'rows'})}"
    alone = tiny_runs.load(
        path, *encoder, "name=alone", parts, "plant.choose_documents=0"
    )
    expected = load_file(run(alone, ["plant"]) / "plant/head.safetensors")
    assert "before training" not in capsys.readouterr().err
    monkeypatch.setattr(plant.WorkerPasses, "dev_macro_f1", lambda _: next(figures))
    planted = load_file(
        run(tiny_runs.load(path, *encoder), ["plant"]) / "plant/head.safetensors"
    )
    assert all(torch.equal(planted[name], expected[name]) for name in expected)
    name = " and ".join(sorted(best)) or "neither"
    assert (
        f"plant: {name}, by macro-F1 of dev before training: attention and values "
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("cached", [True, False])
def test_dev_chooses_by_what_it_measures(tmp_path, capsys, cached):
    """Each start is measured with its own projections and rows."""
    path = tiny_runs.write_config(
        tmp_path, plant={"tokens_per_micro_batch": 300, "cache_hidden": cached}
    )
    run(tiny_runs.load(path, *tiny_runs.pretrained(tmp_path)), ["plant"])
    (said,) = re.findall(
        r"plant: (.+), by macro-F1 of dev before training: (.+)",
        capsys.readouterr().err,
    )
    figures = {
        name: float(value)
        for name, value in re.findall(r"([a-z ]+?) ([\d.]+)(?:, |$)", said[1])
    }
    assert figures.keys() == {"attention and values", "attention", "values", "neither"}
    assert figures[said[0]] == max(figures.values()) > min(figures.values()) > 0


def test_over_random_states_only_rows_are_planted(tmp_path, capsys):
    """Projections that fit random states are far from those that fit the states of a trained encoder."""
    path = tiny_runs.write_config(tmp_path, plant={"tokens_per_micro_batch": 300})
    default, rows = (
        load_file(
            run(tiny_runs.load(path, *settings), ["plant"]) / "plant/head.safetensors"
        )
        for settings in ((), ("name=rows", "plant.parts=[rows]"))
    )
    assert all(torch.equal(default[name], rows[name]) for name in rows)
    config = tiny_runs.load(path, "plant.parts=[attention]")
    assert planting_plan(config.model, config.plant).parts == {"attention"}, (
        "who asks for it, gets it"
    )


def test_sums_of_other_weights_are_left_behind(tmp_path, monkeypatch):
    """Nothing is trained yet, so that the configuration may change: here the seed of the encoder."""
    path = tiny_runs.write_config(
        tmp_path, plant={"tokens_per_micro_batch": 300, "cache_hidden": False}
    )
    settings, add, added = (
        (path, "track.checkpoint_every_minutes=1e-9"),
        PrototypeSums.add,
        [],
    )

    def killed(self, *arguments) -> None:
        add(self, *arguments)
        added.append(arguments)
        if len(added) == 4:
            boom()

    with monkeypatch.context() as patch:
        patch.setattr(PrototypeSums, "add", killed)
        with pytest.raises(BoomError):
            run(tiny_runs.load(*settings), ["plant"])
    assert [*tmp_path.glob("runs/tiny/plant/rows/step_*")]
    roots = [
        run(tiny_runs.load(*settings, "seed=5", name), ["plant"])
        for name in ("name=tiny", "name=fresh")
    ]
    planted, expected = (load_file(root / "plant/head.safetensors") for root in roots)
    assert all(torch.equal(planted[name], expected[name]) for name in expected)


def test_gains_do_not_decay_in_stage_1(config, undisturbed, monkeypatch):
    groups = []

    def look(_worker, _stage, _objective, phases, *_rest) -> None:
        groups.extend(phases[0].groups())
        boom()

    monkeypatch.setattr(plant, "train", look)
    with pytest.raises(BoomError):
        run(config, ["plant"])
    assert {
        p.ndim: group.weight_decay for group in groups for p in group.parameters
    } == {1: 0.0, 2: 0.01}


def test_a_second_signal_ends_at_once(config, monkeypatch):
    config = replace(config, name="impatient")

    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_step(monkeypatch, "plant", 5, twice)
    with pytest.raises(KeyboardInterrupt):
        run(config, ["plant"])
    saved = {
        p.name for p in (RunPaths.of(config).root / "plant" / "checkpoints").iterdir()
    }
    assert "step_00000005" not in saved or saved == {
        "step_00000003",
        "step_00000005",
        "best.safetensors",
    }


def poison(patch: pytest.MonkeyPatch, objective: type, steps: set[int]) -> None:
    """Make the loss NaN in these steps."""
    now = {"poisoned": False}
    original_step, original_forward = Loop._step, objective.forward

    def step(self, module, planned, batches, position, meter):
        now["poisoned"] = position.step + 1 in steps
        return original_step(self, module, planned, batches, position, meter)

    def forward(self, batch, seed):
        output = original_forward(self, batch, seed)
        return (
            LossOutput(output.sum * math.nan, output.count)
            if now["poisoned"]
            else output
        )

    patch.setattr(Loop, "_step", step)
    patch.setattr(objective, "forward", forward)


def test_a_poisoned_batch_is_skipped(config, monkeypatch, capsys):
    config = replace(config, name="poisoned")
    weights: dict[int, dict[str, torch.Tensor]] = {}
    poison(monkeypatch, PlantObjective, {4})
    original = Loop._guard

    def guard(self, loss, norm, position):
        weights[position.step] = {
            n: p.detach().clone() for n, p in self.objective.named_parameters()
        }
        original(self, loss, norm, position)

    monkeypatch.setattr(Loop, "_guard", guard)
    root = run(config, ["plant"])
    assert (
        "plant: step 4: loss nan, gradient norm nan: update skipped (1 in a row)"
        in capsys.readouterr().err
    )
    assert all(torch.equal(weights[3][name], weights[4][name]) for name in weights[3])
    assert any(
        not torch.equal(weights[4][name], weights[5][name]) for name in weights[4]
    )
    losses = tiny_runs.losses(root, "plant")
    assert losses[4] is None
    assert all(math.isfinite(loss) for step, loss in losses.items() if step != 4)


def test_many_poisoned_batches_in_a_row_end_the_stage(config, monkeypatch):
    config = replace(config, name="sick")
    run(config, ["plant"])
    poison(monkeypatch, FinetuneObjective, set(range(3, 99)))
    last = 2 + MAX_SKIPPED_STEPS
    with pytest.raises(
        TrainingError,
        match=rf"finetune: .*not finite for 10 steps in a row, up to step {last}\. .*finetune\.optim",
    ):
        run(config, ["finetune"])


def test_the_best_epoch_may_lie_in_an_early_phase(config, undisturbed, monkeypatch):
    """Restoring it undoes what later phases changed, in parameters that it did not train itself as well."""
    config = replace(config, name="early")
    scores = iter([0.1, 0.9, 0.2, 0.3])
    kept: dict[str, dict[str, torch.Tensor]] = {}

    def measure(loop: Loop) -> dict[str, float]:
        score = next(scores)
        if score == 0.9:
            kept["best"] = {
                n: p.detach().clone() for n, p in loop.objective.named_parameters()
            }
        return {"ndcg@5": score}

    original = Loop.run

    def watched(self):
        self.objective.evaluate = lambda: measure(self)
        position = original(self)
        kept["restored"] = {
            n: p.detach().clone() for n, p in self.objective.named_parameters()
        }
        assert (position.best, position.best_epoch, position.step) == (0.9, 2, 20)
        return position

    run(config, ["plant"])
    monkeypatch.setattr(Loop, "run", watched)
    root = run(config, ["finetune"])
    assert all(
        torch.equal(kept["restored"][name], tensor)
        for name, tensor in kept["best"].items()
    )
    last = max((root / "checkpoints").glob("step_*"))
    held = {
        n: t for file in last.glob("*.safetensors") for n, t in load_file(file).items()
    }
    assert json.loads((last / "manifest.json").read_text())["state"]["best_epoch"] == 2
    changed = [
        n
        for n, t in kept["best"].items()
        for key in held
        if key.endswith(n) and not torch.equal(held[key], t)
    ]
    assert any(".layer.1." in name for name in changed), (
        "the second phase changed nothing, so this test shows nothing"
    )


def test_patience_ends_a_stage_says_so_and_a_resume_knows_it(
    config, monkeypatch, capsys
):
    config = replace(
        config, name="patient", finetune=replace(config.finetune, patience=1)
    )
    scores = iter([0.5, 0.4, 9.0, 9.0])

    original = Loop.run

    def scripted(self):
        self.objective.evaluate = lambda: {"ndcg@5": next(scores)}
        return original(self)

    run(config, ["plant"])
    monkeypatch.setattr(Loop, "run", scripted)
    root = run(config, ["finetune"])
    assert max(tiny_runs.losses(root, "finetune")) == 10
    said = "finetune: stopping after epoch 2 of 4: ndcg@5 has not improved for 1 epochs (finetune.patience)"
    assert said in capsys.readouterr().err
    assert max(tiny_runs.losses(run(config, ["finetune"]), "finetune")) == 10
