"""What is replaced, removed or done twice while a command works: it is refused, or changes nothing."""

import itertools
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq

from attack_cases.attack import Attack, expect, run
from bad_input_cases.case import Site, command

Words = tuple[object, ...]
_FORK = multiprocessing.get_context("fork")
CHANGES = ("overwritten", "replaced", "longer", "shorter", "same size", "removed")


def meanwhile_attacks(site: Site) -> Iterator[Attack]:
    """Everything that a command reads or writes, changed at the moment when it is used."""
    for change in CHANGES:
        yield Attack(
            "input changes", f"score, {change}", partial(_score_changed, site, change)
        )
        yield Attack(
            "input changes",
            f"prepare, {change}",
            partial(_prepare_changed, site, change),
        )
    for stage in ("finetune", "evaluate"):
        yield Attack("corpus is made again", stage, partial(_other_corpus, site, stage))
        yield Attack("corpus is swapped", stage, partial(_swapped_corpus, site, stage))
        for what in ("config.yaml", "source"):
            yield Attack(
                "file changes in mid-run",
                f"{stage}, {what}",
                partial(_changed_file, site, stage, what),
            )
        for what in ("run", "corpus"):
            yield Attack(
                "directory is removed",
                f"{stage}, {what}",
                partial(_removed, site, stage, what),
            )
    for moment in ("begins", "works"):
        yield Attack(
            "model is replaced",
            f"score {moment}",
            partial(_score_replaced, site, moment),
        )
    for entry in ("train", "score", "labels rename", "prepare"):
        yield Attack("twice at once", entry, partial(_twice, site, entry))
    yield Attack("clock goes back", "train", partial(_clock, site))
    yield Attack("run is copied elsewhere", "evaluate", partial(_copied, site))
    for mask in (0o077, 0o000):
        yield Attack(f"umask {mask:03o}", "train", partial(_masked, site, mask))


def _change(path: Path, how: str, other: bytes) -> None:
    before = path.read_bytes()
    if how == "replaced":
        path.with_suffix(".new").write_bytes(other)
        path.with_suffix(".new").replace(path)
    elif how == "removed":
        path.unlink()
    else:
        content = {
            "overwritten": other,
            "longer": before + other,
            "shorter": before[: len(before) // 2],
        }
        path.write_bytes(content.get(how, before.replace(b"law", b"LAW")))


def _at(place: str, do: Callable[[], object]) -> AbstractContextManager[object]:
    """Do something once, when the function at a place is first called."""
    module, name = place.rsplit(".", 1)
    real = getattr(__import__(module, fromlist=[name]), name)
    turns = itertools.count()

    def call(*arguments: object, **options: object) -> object:
        if next(turns) == 0:
            do()
        return real(*arguments, **options)

    return patch(place, call)


def _rows(folder: Path, number: int) -> Path:
    path = folder / "in.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": f"d{i}", "text": f"lawery {i}"}) + "\n"
            for i in range(number)
        )
    )
    return path


def _score_changed(site: Site, how: str, folder: Path) -> None:
    source, output = _rows(folder, 60_000), folder / "out"
    other = b'{"id": "x", "text": "steel"}\n' * 99
    with (
        _at("xmtc.score.local.publish", lambda: _change(source, how, other)),
        patch("xmtc.score.local.BLOCKS_AHEAD", 1),
    ):
        words = (
            "score",
            site.model,
            source,
            "--id",
            "id",
            "-o",
            output,
            "--block-rows",
            5,
        )
        run(*words, refused="in.jsonl")
    expect(not (output / "_manifest.json").exists(), "the job has a manifest")
    parts = sorted(output.glob("part-*.parquet"))
    ids = [
        one
        for part in parts
        for one in pq.read_table(part).column("doc_id").to_pylist()
    ]
    expect(
        ids == [f"d{i}" for i in range(len(ids))],
        "rows of the new content are published",
    )


def _train(site: Site, folder: Path) -> Words:
    source = folder / "train.jsonl"
    if not source.exists():
        shutil.copy(site.folder / "train.jsonl", source)
    return (
        *(
            "train",
            site.config,
            f"data.corpus={folder / 'corpus'}",
            f"data.source.files.train={source}",
        ),
        f"track.directory={folder / 'runs'}",
    )


def _prepare_changed(site: Site, how: str, folder: Path) -> None:
    words = ("prepare", *_train(site, folder)[1:])
    other = b'{"text": "steel", "labels": ["steel"]}\n' * 50
    with _at(
        "xmtc.data.prepare.choose_words",
        lambda: _change(folder / "train.jsonl", how, other),
    ):
        run(
            *words,
            refused="no such file" if how == "removed" else "changed while it was read",
        )
    expect(not (folder / "corpus").exists(), "a corpus of mixed content was published")


def _other_corpus(site: Site, stage: str, folder: Path) -> None:
    other = ("prepare", *_train(site, folder)[1:], "data.max_length=16")
    with _at(
        "xmtc.stages.run_stage.build_worker",
        lambda: run(*other, refused="a run is using this corpus"),
    ):
        run(*_train(site, folder))
    run(*other)


_HOOKS = {"finetune": "run_workers", "evaluate": "compare_with_initial_model"}


def _swapped_corpus(site: Site, stage: str, folder: Path) -> None:
    """Another corpus under the same name, without a lock: as another machine could do it."""
    run(
        "prepare",
        *_train(site, folder)[1:],
        "data.max_length=16",
        f"data.corpus={folder / 'other'}",
    )

    def swap() -> None:
        (folder / "corpus").rename(folder / "old")
        (folder / "other").rename(folder / "corpus")

    words = _train(site, folder)
    if stage == "evaluate":
        run(*words)
        swap()
        run(
            "evaluate",
            folder / "runs" / "tiny",
            refused="no longer the corpus of the run",
        )
    else:
        with _at("xmtc.pipeline.run_workers", swap):
            run(*words, refused="no longer the corpus of the run")


def _changed_file(site: Site, stage: str, what: str, folder: Path) -> None:
    words = _train(site, folder)
    run(
        *words,
        f"track.directory={folder / 'good'}",
        f"data.corpus={folder / 'good corpus'}",
    )
    changed = folder / "own.yaml" if what == "config.yaml" else folder / "train.jsonl"
    shutil.copy(site.config, folder / "own.yaml")
    words = ("train", folder / "own.yaml", *words[2:])
    with _at(
        f"xmtc.pipeline.{_HOOKS[stage]}", lambda: changed.write_text("name: other\n")
    ):
        run(*words)
    _same_metrics(folder / "good" / "tiny", folder / "runs" / "tiny")


def _same_metrics(expected: Path, found: Path) -> None:
    both = [
        json.loads((run / "eval" / "dev" / "metrics.json").read_text())
        for run in (expected, found)
    ]
    for one in both:
        one.pop("seconds")
    expect(both[0] == both[1], "other metrics")


def _removed(site: Site, stage: str, what: str, folder: Path) -> None:
    words, place = (
        _train(site, folder),
        folder / ("runs" if what == "run" else "corpus"),
    )
    with _at(f"xmtc.pipeline.{_HOOKS[stage]}", lambda: shutil.rmtree(place)):
        code, said = command(*words)
    expect("Traceback" not in said, said)
    expect(code == 0 or said.strip(), "silent")
    run(*words)


def _score_replaced(site: Site, moment: str, folder: Path) -> None:
    model, source = folder / "model", _rows(folder, 40)
    shutil.copytree(site.model, model)
    words = ("score", model, source, "--id", "id", "--block-rows", 5, "-o")
    run(*words, folder / "good")

    def replace() -> None:
        run("labels", "rename", site.model, "law=laws", "-o", folder / "other")
        shutil.rmtree(model)
        (folder / "other").rename(model)

    place = (
        "xmtc.score.local.load_model"
        if moment == "begins"
        else "xmtc.score.local.publish"
    )
    with _at(place, replace):
        run(
            *words,
            folder / "out",
            refused="replaced by another model" if moment == "begins" else None,
        )
    if moment == "works":
        same = [
            (path.name, path.read_bytes())
            for path in sorted((folder / "good").glob("*.parquet"))
        ]
        expect(
            same
            == [
                (p.name, p.read_bytes())
                for p in sorted((folder / "out").glob("*.parquet"))
            ],
            "other scores",
        )


def _exit_with(words: Words) -> None:
    code, said = command(*words)
    raise SystemExit(99 if "Traceback" in said else code)


def _twice(site: Site, entry: str, folder: Path) -> None:
    words: dict[str, Words] = {
        "train": _train(site, folder),
        "prepare": ("prepare", *_train(site, folder)[1:]),
        "score": (
            "score",
            site.model,
            _rows(folder, 2_000),
            "--id",
            "id",
            "--block-rows",
            50,
            "-o",
            folder / "out",
        ),
        "labels rename": (
            "labels",
            "rename",
            site.model,
            "law=laws",
            "-o",
            folder / "out",
        ),
    }
    both = [_FORK.Process(target=_exit_with, args=(words[entry],)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(200)
    codes = sorted(one.exitcode if one.exitcode is not None else 98 for one in both)
    expect(codes[0] == 0 and codes[1] in (0, 1), f"exit status {codes}")
    run(*words[entry])


def _clock(site: Site, folder: Path) -> None:
    real, turns = time.time, itertools.count()
    with patch("time.time", lambda: real() - 3600 * next(turns)):
        run(*_train(site, folder))
    run(*_train(site, folder))


def _copied(site: Site, folder: Path) -> None:
    run(*_train(site, folder))
    shutil.copytree(folder / "runs" / "tiny", folder / "elsewhere" / "copy")
    run("evaluate", folder / "elsewhere" / "copy")
    run("status", folder / "elsewhere" / "copy")


def _masked(site: Site, mask: int, folder: Path) -> None:
    import os

    before = os.umask(mask)
    try:
        run(*_train(site, folder))
    finally:
        os.umask(before)
    written = [path for path in (folder / "runs").rglob("*") if path.is_file()]
    wrong = [path for path in written if path.stat().st_mode & 0o077 & mask]
    expect(written and not wrong, f"others may read {wrong[:3]}")
