"""Check the places of a configuration: free disk space, and the source."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from xmtc.data.readers.files import check_file
from xmtc.errors import DataError
from xmtc.estimate.estimate import Estimate
from xmtc.preflight.machine import GIB, Check, found
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.storage.fetch import remote_parts

_MIN_FREE_GIB = 5


def check_disks(config: RunConfig | None) -> Iterator[Check]:
    """Check the disks of runs and corpora, or of their copies if they are at a URI."""
    paths = RunPaths.of(config) if config else None
    runs, corpus = (
        (paths.root.parent, paths.corpus) if paths else (Path("runs"), Path("corpora"))
    )
    for name, path in (("runs", runs), ("corpus", corpus)):
        yield _room(
            f"disk: {name}",
            path,
            _MIN_FREE_GIB * GIB,
            "free disk space, or choose another folder",
        )


def check_estimated_disks(config: RunConfig, estimated: Estimate) -> Iterator[Check]:
    """Check the disk space for cached hidden states, and for tensors that the strategy offloads to a disk.

    Without this space, training would fail; how much it needs is certain only of a prepared corpus.
    """
    size = estimated.disk["hidden states"]
    if size:
        fix = "free disk space, or set plant.cache_hidden=false finetune.cache_hidden=false"
        check = _room(
            "hidden states",
            RunPaths.of(config).corpus,
            size,
            fix,
            needed=estimated.size.prepared,
        )
        yield replace(
            check, detail=f"{check.detail}; about {size / GIB:,.2f} GiB needed"
        )


def _room(
    name: str, path: Path, wanted: float, fix: str, *, needed: bool = False
) -> Check:
    """Check the disk where a folder is, or would be created."""
    folder = next(
        folder
        for folder in (path.absolute(), *path.absolute().parents)
        if folder.is_dir()
    )
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(
            name, "missing", f"{folder} is not writable", "choose another folder"
        )
    free = shutil.disk_usage(folder).free
    return found(
        name,
        free >= wanted,
        f"{free / GIB:,.1f} GiB free at {path}",
        fix,
        needed=needed,
    )


def check_source(config: RunConfig) -> Iterator[Check]:
    """Check that the files of the source are here and can be read; those at URIs are for the run to fetch."""
    if any(remote_parts(config.data.source)):
        return
    reader = config.data.source.build()
    fix = "correct data.source, or copy the files there; paths are relative to the folder in which you start xmtc"
    try:
        files = reader.files()
        if absent := [str(path) for path in files if not path.exists()]:
            yield Check("source", "missing", f"no such file: {', '.join(absent)}", fix)
            return
        for path in files:
            check_file(path)
    except DataError as error:
        yield Check("source", "missing", str(error), fix)
    else:
        if files:
            yield Check("source", "ok", f"{len(files)} files are here")
