"""Runs of a stranger: their states, checkpoints, locks and logs, at the commands that read or continue a run."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from attack_cases.attack import Attack, expect
from attack_cases.corpora import check_metrics
from attack_cases.signatures import sign_checkpoint
from bad_input_cases.case import Site, command, spoken
from mutations import attempt

Change = Callable[[Path], object]
Settings = dict[str, Any]
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
"""What changes the title of a terminal, and clears it."""
READING = ("status", "report", "evaluate")


def run_attacks(site: Site, adapted: Site) -> Iterator[Attack]:
    """Every change of a finished run at the commands that read it, and of an interrupted run where it continues.

    Args:
        site: a run whose head is trained row by row.
        adapted: a run of a Transformer with an adapter, whose optimizer has a file of its own.
    """
    for (name, change), entry in itertools.product(STATES.items(), ("status", "train")):
        yield Attack(
            "runs: states",
            f"{entry}, {name}",
            partial(_attack, site, entry, change, entry == "train"),
        )
    for (name, change), entry in itertools.product(LOGS.items(), READING):
        yield Attack(
            "runs: logs",
            f"{entry}, {name}",
            partial(_attack, site, entry, change, False),
        )
    for name, change in CHECKPOINTS.items():
        yield Attack(
            "runs: checkpoints", name, partial(_attack, site, "train", change, True)
        )
    for name, change in OPTIMIZERS.items():
        yield Attack(
            "runs: optimizers", name, partial(_attack, adapted, "train", change, True)
        )
    for name, make in LOCKS.items():
        yield Attack("runs: locks", name, partial(_lock, site, make))


def copied_run(site: Site, folder: Path, *, interrupted: bool) -> Path:
    """Copy a run with its corpus and configuration, as if it had been made in another folder.

    Args:
        site: the run.
        folder: for the copies.
        interrupted: whether fine-tuning, and what follows, is still to be done.
    """
    run = folder / "runs" / site.run.name
    shutil.copytree(site.run, run)
    shutil.copytree(site.corpus, folder / "corpus")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["corpus"] = str(folder / "corpus")
    config["track"]["directory"] = str(folder / "runs")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    if interrupted:
        for name in ("model", "eval"):
            shutil.rmtree(run / name)
        content = json.loads((run / "run.json").read_text())
        content["stages"] = {"prepare": content["stages"]["prepare"]}
        (run / "run.json").write_text(json.dumps(content))
    return run


def _words(site: Site, entry: str, run: Path, folder: Path) -> tuple[object, ...]:
    return {
        "status": ("status", run),
        "report": ("report", run, "-o", folder / "report.html"),
        "evaluate": ("evaluate", run),
        "train": (
            *("train", site.config, f"data.corpus={folder / 'corpus'}"),
            f"track.directory={folder / 'runs'}",
        ),
    }[entry]


def _attack(
    site: Site, entry: str, change: Change, interrupted: bool, folder: Path
) -> None:
    run = copied_run(site, folder, interrupted=interrupted)
    change(run)
    code, results, problems = spoken(*_words(site, entry, run, folder))
    said = results + problems
    expect("Traceback" not in said, said)
    expect(
        "\x1b]" not in said and "\x1b[2J" not in said,
        f"it commands the terminal: {said!a}",
    )
    expect(code == 0 or said.strip(), "silent")
    if entry == "train" and code == 0:
        check_metrics(run)
        outcome, found = attempt(run / "model")
        expect(outcome == "accepted", f"the model that it made: {outcome}, {found}")


def _lock(site: Site, make: Change, folder: Path) -> None:
    """What lies where a lock belongs is neither waited for nor written to."""
    victim = folder / "victim"
    victim.write_text("kept")
    run = copied_run(site, folder, interrupted=True)
    make(run)
    code, said = command(*_words(site, "train", run, folder))
    expect("Traceback" not in said, said)
    expect(code == 0 or said.strip(), "silent")
    expect(victim.read_text() == "kept", "another file was written to")


def _edited(name: str, edit: Callable[[Any], object]) -> Change:
    def change(run: Path) -> None:
        path = run / name
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return change


def _set(*keys: str, value: Any) -> Change:
    def edit(content: Settings) -> None:
        for key in keys[:-1]:
            content = content.setdefault(key, {})
        content[keys[-1]] = value

    return _edited("run.json", edit)


def _done(content: Settings) -> None:
    """Claim that stages are done which have left nothing."""
    prepared = content["stages"]["prepare"]
    for name in ("finetune", "evaluate", "report"):
        content["stages"][name] = prepared | {"fingerprint": prepared["fingerprint"]}


def _whole(name: str, text: str | bytes) -> Change:
    def change(run: Path) -> None:
        content = text.encode() if isinstance(text, str) else text
        (run / name).write_bytes(content)

    return change


def _instead(name: str, make: Change) -> Change:
    def change(run: Path) -> None:
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return change


STATES: dict[str, Change] = {
    "stages that left nothing": _edited("run.json", _done),
    "a stage that nobody knows": _set("stages", "x", value={"state": "done"}),
    "a stage of a list": _set("stages", "finetune", value=[]),
    "stages of a list": _set("stages", value=[]),
    "a state that nobody knows": _set("stages", "prepare", "state", value="perhaps"),
    "a state that commands": _set("stages", "prepare", "state", value=ESCAPE),
    "a stage that commands": _set("stages", ESCAPE, value={"state": "done"}),
    "an error that commands": _set("stages", "prepare", "error", value=ESCAPE),
    "an error of a list": _set("stages", "prepare", "error", value=["x"]),
    "a failed stage": _set("stages", "prepare", "state", value="failed"),
    "a time of another kind": _set("stages", "prepare", "started_at", value=-1),
    "a time of no calendar": _set(
        "stages", "prepare", "finished_at", value="9999999-99-99T99:99"
    ),
    "a time that commands": _set("updated_at", value=ESCAPE),
    "a time without a zone": _set(
        "stages", "prepare", "started_at", value="2026-01-01T00:00:00"
    ),
    "a fingerprint of a list": _set("stages", "prepare", "fingerprint", value=[]),
    "a corpus of a path": _set("fingerprints", "corpus", value="../../x"),
    "a corpus of a list": _set("fingerprints", value=[]),
    "versions that command": _set("versions", value={"torch": ESCAPE, ESCAPE: "1"}),
    "versions of numbers": _set("versions", value={"torch": 1}),
    "no versions": _set("versions", value=None),
    "a commit that commands": _set("git", value={"commit": ESCAPE, "dirty": "x"}),
    "seeds of text": _set("seeds", value={"run": "x"}),
    "very many sessions": _edited(
        "run.json",
        lambda content: content.update(sessions=content["sessions"] * 100_000),
    ),
    "no sessions": _set("sessions", value=[]),
    "sessions of numbers": _set("sessions", value=[1]),
    "a command that commands": _edited(
        "run.json", lambda content: content["sessions"][0].update(command=[ESCAPE])
    ),
    "a world of -1": _edited(
        "run.json", lambda content: content["sessions"][0].update(world_size=-1)
    ),
    "another format": _set("format", value=2**70),
    "no format": _set("format", value="1"),
    "another hash": _set("config_hash", value="0" * 16),
    "half a file": _whole("run.json", '{"format": 1, "st'),
    "no object": _whole("run.json", "[]"),
    "lists in lists": _whole("run.json", "[" * 200_000),
    "no text": _whole("run.json", b"\xff\xfe\0"),
    "a pipe": _instead("run.json", os.mkfifo),
    "a folder": _instead("run.json", os.mkdir),
    "a device": _instead("run.json", lambda path: path.symlink_to("/dev/zero")),
}
"""Changes of `run.json`."""


def _predictions(edit: Callable[[Any], Any]) -> Change:
    def change(run: Path) -> None:
        import pyarrow.parquet as pq

        for path in (run / "eval").glob("*/predictions.parquet"):
            pq.write_table(edit(pq.read_table(path)), path)

    return change


def _column(name: str, values: Callable[[list[Any]], Any]) -> Change:
    import pyarrow as pa

    def edit(table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index(name)
        return table.set_column(
            position, name, pa.array(values(table[name].to_pylist()))
        )

    return _predictions(edit)


_LINE = {"stage": "finetune", "step": 1, "time_s": 0.1, "train/loss": 1.0}
LOGS: dict[str, Change] = {
    "a name that commands": _whole(
        "metrics.jsonl", json.dumps({**_LINE, f"dev/{ESCAPE}": 1.0}) + "\n"
    ),
    "a stage that commands": _whole(
        "metrics.jsonl", json.dumps({**_LINE, "stage": ESCAPE}) + "\n"
    ),
    "a value that commands": _whole(
        "metrics.jsonl", json.dumps({**_LINE, "train/loss": ESCAPE}) + "\n"
    ),
    "values of no number": _whole(
        "metrics.jsonl",
        '{"stage": "finetune", "step": NaN, "time_s": Infinity, "train/loss": NaN}\n',
    ),
    "a step of a list": _whole(
        "metrics.jsonl", json.dumps({**_LINE, "step": [1]}) + "\n"
    ),
    "no objects": _whole("metrics.jsonl", "1\n[]\nnull\n"),
    "half a line": _whole(
        "metrics.jsonl", json.dumps(_LINE) + "\n" + json.dumps(_LINE)[:20]
    ),
    "no text": _whole("metrics.jsonl", b"\xff\xfe\0\n"),
    "a long line": _whole(
        "metrics.jsonl", json.dumps({**_LINE, "x" * 5_000_000: 1.0}) + "\n"
    ),
    "very many names": _whole(
        "metrics.jsonl",
        json.dumps({**_LINE, **{f"train/{i}": 1.0 for i in range(50_000)}}) + "\n",
    ),
    "very many lines": _whole("metrics.jsonl", (json.dumps(_LINE) + "\n") * 200_000),
    "steps that go back": _whole(
        "metrics.jsonl",
        "".join(
            json.dumps({**_LINE, "step": step}) + "\n" for step in (9, 1, -5, 2**70)
        ),
    ),
    "a pipe": _instead("metrics.jsonl", os.mkfifo),
    "a device": _instead("metrics.jsonl", lambda path: path.symlink_to("/dev/zero")),
    "predictions of no number": _column(
        "scores", lambda rows: [[float("nan")] * len(row) for row in rows]
    ),
    "predictions above 1": _column(
        "scores", lambda rows: [[1e30] * len(row) for row in rows]
    ),
    "predictions of fewer scores": _column(
        "scores", lambda rows: [row[:1] for row in rows]
    ),
    "predictions of unknown labels": _column(
        "labels", lambda rows: [["none"] * len(row) for row in rows]
    ),
    "predictions of one label": _column(
        "labels", lambda rows: [row[:1] * len(row) for row in rows]
    ),
    "predictions of nothing": _column("labels", lambda rows: [None] * len(rows)),
    "predictions for one document": _column(
        "doc_id", lambda rows: rows[:1] * len(rows)
    ),
    "metrics of no number": _whole(
        "eval/dev/metrics.json", '{"ndcg@5": NaN, "ci95": {"ndcg@5": [NaN]}}'
    ),
    "metrics of text": _whole(
        "eval/dev/metrics.json",
        '{"ndcg@5": "<script>alert(1)</script>", "bins": [], "docs": -1}',
    ),
    "details of lists": _whole("eval/dev/details.json", "[[[]]]"),
    "settings that lead out": _whole("config.yaml", "name: ../../x\n"),
    "settings of tags": _whole(
        "config.yaml", "name: !!python/object/apply:os.system ['touch owned']\n"
    ),
}
"""Changes of what a finished run has logged and measured."""


def _checkpoint(run: Path) -> Path:
    return max((run / "checkpoints").glob("step_*"))


def _manifest(edit: Callable[[Settings], object]) -> Change:
    def change(run: Path) -> None:
        path = _checkpoint(run) / "manifest.json"
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return change


def _state(**values: Any) -> Change:
    return _manifest(lambda content: content["state"].update(values))


def _optimizer(**values: Any) -> Change:
    def change(run: Path) -> None:
        path = _checkpoint(run) / "optimizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
        sign_checkpoint(path.parent)

    return change


def _arrays(
    edit: Callable[[np.ndarray], np.ndarray],
    only: str = "",
    metadata: dict[str, str] | None = None,
) -> Change:
    """Change arrays of the newest checkpoint whose names have a text in them."""

    def change(run: Path) -> None:
        folder = _checkpoint(run)
        for path in folder.glob("*.safetensors"):
            with safe_open(path, "np") as file:
                known = file.metadata()
            arrays = {
                name: np.ascontiguousarray(edit(array)) if only in name else array
                for name, array in load_file(path).items()
            }
            save_file(arrays, path, known if metadata is None else metadata)
        sign_checkpoint(folder)

    return change


def _names(edit: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Change:
    def change(run: Path) -> None:
        folder = _checkpoint(run)
        for path in folder.glob("*.safetensors"):
            with safe_open(path, "np") as file:
                known = file.metadata()
            save_file(edit(load_file(path)), path, known)
        sign_checkpoint(folder)

    return change


def _best(edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(run: Path) -> None:
        path = run / "checkpoints" / "best.safetensors"
        with safe_open(path, "np") as file:
            known = file.metadata()
        arrays = {
            name: np.ascontiguousarray(edit(array))
            for name, array in load_file(path).items()
        }
        save_file(arrays, path, known)

    return change


def _beside(name: str, make: Change) -> Change:
    return lambda run: make(run / "checkpoints" / name)


def _outside(run: Path) -> None:
    """The newest checkpoint lies elsewhere, behind a link."""
    newest = _checkpoint(run)
    newest.rename(run.parent.parent / "elsewhere")
    newest.symlink_to(run.parent.parent / "elsewhere")


def _above(content: Settings) -> None:
    content["files"]["../../run.json"] = {"bytes": 1, "sha256": "0" * 64}


_NAN = float("nan")
CHECKPOINTS: dict[str, Change] = {
    "parameters of no number": _arrays(lambda array: array * _NAN, "parameter"),
    "everything infinite": _arrays(
        lambda array: (array + np.inf) if array.dtype.kind == "f" else array
    ),
    "moments below 0": _arrays(lambda array: -np.abs(array) - 1, "square"),
    "moments of no number": _arrays(lambda array: array * _NAN, "mean"),
    "steps below 0": _arrays(lambda array: array * 0 - 5, "steps"),
    "steps of 2**31 - 1": _arrays(lambda array: array * 0 + (2**31 - 1), "steps"),
    "one row less": _arrays(lambda array: array[:-1]),
    "one row more": _arrays(lambda array: np.concatenate([array, array[:1]])),
    "rows and columns swapped": _arrays(lambda array: array.T),
    "whole numbers": _arrays(lambda array: array.astype(np.int64)),
    "double precision": _arrays(lambda array: array.astype(np.float64)),
    "no rows": _arrays(lambda array: array[:0]),
    "other names": _names(
        lambda arrays: {f"x{name}": array for name, array in arrays.items()}
    ),
    "one name less": _names(lambda arrays: dict(list(arrays.items())[1:])),
    "a name more": _names(lambda arrays: arrays | {"x": np.zeros(3)}),
    "no arrays": _names(lambda _: {}),
    "no total": _arrays(lambda array: array, metadata={}),
    "a total of text": _arrays(
        lambda array: array, metadata={"total": "x", "first": "y"}
    ),
    "a total of 10**12": _arrays(
        lambda array: array, metadata={"total": str(10**12), "first": "0"}
    ),
    "a first of -3": _arrays(
        lambda array: array, metadata={"total": "24", "first": "-3"}
    ),
    "the best of no number": _best(lambda array: array * _NAN),
    "the best of other shapes": _best(lambda array: array[:-1]),
    "the best of whole numbers": _best(lambda array: array.astype(np.int64)),
    "the best of nothing": _instead("checkpoints/best.safetensors", Path.touch),
    "the best of a pipe": _instead("checkpoints/best.safetensors", os.mkfifo),
    "the best of a link": _instead(
        "checkpoints/best.safetensors", lambda path: path.symlink_to("/dev/zero")
    ),
    "a step of -1": _manifest(lambda content: content.update(step=-1)),
    "a step of 2**70": _manifest(lambda content: content.update(step=2**70)),
    "a step of text": _manifest(lambda content: content.update(step="4")),
    "a world of 0": _manifest(lambda content: content.update(world_size=0)),
    "a world of 10**9": _manifest(lambda content: content.update(world_size=10**9)),
    "another format": _manifest(lambda content: content.update(format=2)),
    "files above": _manifest(_above),
    "no files": _manifest(lambda content: content.update(files={})),
    "files of a list": _manifest(lambda content: content.update(files=[])),
    "no state": _manifest(lambda content: content.update(state={})),
    "a state of a list": _manifest(lambda content: content.update(state=[])),
    "a phase of 99": _state(phase=99),
    "a phase of -1": _state(phase=-1),
    "an epoch of -1": _state(epoch=-1),
    "an epoch of 10**12": _state(epoch=10**12),
    "documents of -1": _state(consumed=-1),
    "documents of 10**12": _state(consumed=10**12),
    "documents of text": _state(consumed="0"),
    "steps of -5": _state(step=-5, phase_step=-5),
    "a best of no number": _state(best=_NAN),
    "a best of infinity": _state(best=float("inf")),
    "a best of text": _state(best="x"),
    "a best epoch of 10**9": _state(best_epoch=10**9),
    "skipped of -1": _state(skipped=-1),
    "other inputs": _state(inputs="0" * 16),
    "a key more": _state(x=1),
    "a later one that is empty": _beside("step_99999999", os.mkdir),
    "a later one that is a file": _beside(
        "step_00000099", lambda path: path.write_text("x")
    ),
    "a later one that is a pipe": _beside("step_00000099", os.mkfifo),
    "a name of text": _beside("step_x", os.mkdir),
    "a name below 0": _beside("step_-0000001", os.mkdir),
    "behind a link": _outside,
    "a pipe for the folder": _instead("checkpoints", os.mkfifo),
    "a file for the folder": _instead("checkpoints", Path.touch),
}
"""Changes of the newest checkpoint of an interrupted run, with the checksums that fit."""
OPTIMIZERS: dict[str, Change] = {
    "no parts": _optimizer(parts=0),
    "parts of -1": _optimizer(parts=-1),
    "parts of 10**9": _optimizer(parts=10**9),
    "optimizer steps of -1": _optimizer(steps=-1),
    "optimizer steps of text": _optimizer(steps="x"),
    "another optimizer's format": _optimizer(format=9),
}
"""Changes of the optimizer's file in such a checkpoint."""


def _place(*names: str) -> Callable[[Path], Path]:
    return lambda run: run.joinpath(*names)


_PLACES: dict[str, Callable[[Path], Path]] = {
    "run": _place(".lock"),
    "corpus": _place("..", "..", ".corpus.lock"),
}
_MADE: dict[str, Change] = {
    "a folder": os.mkdir,
    "a pipe": os.mkfifo,
    "a link to another file": lambda path: path.symlink_to(_victim(path)),
    "a second name of another file": lambda path: os.link(_victim(path), path),
    "a link to nothing": lambda path: path.symlink_to("none/none"),
    "a link to a device": lambda path: path.symlink_to("/dev/full"),
    "words of another machine": lambda path: path.write_text(
        "process 1 on another-machine\n"
    ),
}


def _victim(path: Path) -> Path:
    """The file that `_lock` watches."""
    return next(
        parent / "victim"
        for parent in path.resolve().parents
        if (parent / "victim").exists()
    )


def _locks() -> dict[str, Change]:
    def change(run: Path, place: Callable[[Path], Path], make: Change) -> None:
        path = place(run)
        path.unlink(missing_ok=True)
        make(path)

    return {
        f"{where}, {name}": partial(change, place=place, make=make)
        for (where, place), (name, make) in itertools.product(
            _PLACES.items(), _MADE.items()
        )
    }


LOCKS = _locks()
"""What may lie where a run or a corpus has its lock."""
