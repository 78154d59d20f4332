"""A local directory and its remote copy.

Next to the local directory, `.<name>.mirror.json` remembers, for every file that was copied in either direction, size
and time of the local file and the version of the remote one. So either side's changes are known without reading
anything, and several processes of a node, taking turns, share one copy.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path, PurePosixPath
from shutil import copyfile
from typing import TypeVar

from xmtc.errors import StorageError
from xmtc.files import file_sha256, locked, reading, replacing_file, write_text
from xmtc.storage.remote import Remote, Stamp

logger = logging.getLogger(__name__)

_MANIFESTS = ("manifest.json", "_manifest.json", "run.json")
"""Files that mark a directory as whole, in the order in which they are copied after all others."""
_PARALLEL_COPIES = 8
_DOWNLOAD_ATTEMPTS = 3
"""How often a file is downloaded that arrives damaged."""
_PIECE_BYTES = 1 << 20
"""How much of two files is compared at a time."""

T = TypeVar("T")
Choose = Callable[[str], bool]
Copied = dict[str, dict[str, Stamp]]


class Mirror:
    """Keeps `local` and `remote` the same, on request.

    Files whose path has a part that begins with a dot or ends in `.tmp` or `.part` stay where they are.

    Args:
        local: directory; created if needed.
        remote: its remote copy; None: there is none, and every method does nothing.
    """

    def __init__(self, local: Path, remote: Remote | None):
        self.local = local
        self.remote = remote

    @property
    def place(self) -> str:
        """Where a user finds it: the URI, or the directory."""
        return self.remote.uri if self.remote else str(self.local)

    def push(self, folder: str = "", choose: Choose = lambda name: True) -> None:
        """Copy what changed here since the last push or pull.

        Manifests go after all other files, `run.json` last: what a half-finished push leaves is not taken for whole.

        Args:
            folder: copy only what is below it. Default: everything.
            choose: selects names, relative to the mirror.

        Raises:
            StorageError: the remote side cannot be written; what was copied is remembered.
        """
        if self.remote is None:
            return
        with self._locked() as record:
            local_stamps = {
                name: _local_stamp(self.local / name)
                for name in self._names(folder)
                if choose(name)
            }
            changed = [
                name
                for name, stamp in local_stamps.items()
                if record.get(name, {}).get("local") != stamp
            ]
            for name, remote_stamp in self._in_order(changed, self._upload):
                if remote_stamp is not None:
                    record[name] = {"local": local_stamps[name], "remote": remote_stamp}
                    self._save(record)

    def pull(
        self,
        folder: str = "",
        choose: Choose = lambda name: True,
        *,
        sha256: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> None:
        """Copy what changed there since the last push or pull, and what is missing here.

        Where both sides changed, the remote one wins, because another machine has continued the run. A local file that
        begins with the whole remote one stays: the remote one is an older copy of it, whose upload succeeded although
        the answer was lost.

        Args:
            folder: copy only what is below it. Default: everything.
            choose: selects names, relative to the mirror.
            sha256: checksums that files must have, by name.
            exact: delete here what is not there.

        Raises:
            StorageError: the remote side cannot be read, or a file is not what its checksum says.
        """
        if self.remote is None:
            return
        checksums = sha256 or {}
        with self._locked() as record:
            remote_stamps = {
                name: stamp
                for name, stamp in self.remote.list(folder).items()
                if not _private(name)
            }
            outdated: list[str] = []
            for name in filter(choose, remote_stamps):
                is_changed = record.get(name, {}).get("remote") != remote_stamps[name]
                if is_changed or not (self.local / name).is_file():
                    outdated.append(name)
            for name, local_stamp in self._in_order(
                outdated, lambda name: self._download(name, checksums.get(name))
            ):
                record[name] = {"local": local_stamp, "remote": remote_stamps[name]}
                self._save(record)
            if exact:
                for name in self._names(folder):
                    if choose(name) and name not in remote_stamps:
                        (self.local / name).unlink()
            # What somebody deleted there is forgotten, so that the next push uploads it again.
            self._save(
                {
                    name: entry
                    for name, entry in record.items()
                    if name in remote_stamps or not _below(name, folder)
                }
            )

    def remove(self, folder: str) -> None:
        """Delete what is below `folder` on the remote side, what marks it as whole first."""
        if self.remote is None:
            return
        with self._locked() as record:
            for name in sorted(self.remote.list(folder), key=_order, reverse=True):
                self.remote.remove(name)
            self._save(
                {
                    name: entry
                    for name, entry in record.items()
                    if not _below(name, folder)
                }
            )

    def changed_elsewhere(self, name: str) -> bool:
        """Whether the remote file is another version than the one that was last copied."""
        if self.remote is None:
            return False
        with self._locked() as record:
            copied = record.get(name)
        return copied is not None and self.remote.stamp(name) != copied["remote"]

    def folders(self, folder: str) -> list[str]:
        """List the remote folders in `folder` that hold a `manifest.json`, and so are complete; sorted."""
        if self.remote is None:
            return []
        top = PurePosixPath(folder)
        complete: list[str] = []
        for name in self.remote.list(folder):
            path = PurePosixPath(name)
            if path.name == "manifest.json" and path.parent.parent == top:
                complete.append(path.parent.name)
        return sorted(complete)

    def _in_order(
        self, names: Iterable[str], copy: Callable[[str], T]
    ) -> Iterator[tuple[str, T]]:
        """Copy several files in parallel, manifests after all others; yield each name with the result of its copy."""
        with ThreadPoolExecutor(_PARALLEL_COPIES) as pool:
            for _, same_rank in groupby(
                sorted(names, key=_order), key=lambda name: _order(name)[0]
            ):
                group = list(same_rank)
                yield from zip(group, pool.map(copy, group), strict=True)

    def _upload(self, name: str) -> Stamp | None:
        assert self.remote is not None
        path = self.local / name
        # the process that owns it may just have removed it
        return self.remote.upload(path, name) if path.is_file() else None

    def _download(self, name: str, sha256: str | None) -> Stamp:
        """Download a file.

        Returns:
            the stamp of the local file of which the remote one is a copy.
        """
        assert self.remote is not None
        path = self.local / name
        with replacing_file(path) as partial:
            for _ in range(_DOWNLOAD_ATTEMPTS):
                self.remote.download(name, partial)
                if sha256 is None or file_sha256(partial) == sha256:
                    break
            else:
                raise StorageError(
                    f"{self.remote.uri}/{name}: damaged there: its SHA-256 is not the manifest's; delete it and write "
                    "it again"
                )
            if sha256 is None and path.is_file() and _begins_with(path, partial):
                downloaded = _local_stamp(partial)
                copyfile(path, partial)
                return downloaded
        return _local_stamp(path)

    def _names(self, folder: str) -> list[str]:
        top = self.local / folder
        if not top.is_dir():
            return []
        names = [
            path.relative_to(self.local).as_posix()
            for path in top.rglob("*")
            if path.is_file()
        ]
        return [name for name in names if not _private(name)]

    @contextmanager
    def _locked(self) -> Iterator[Copied]:
        """Lock the mirror against other processes of this machine, and yield the record."""
        with locked(self.local.with_name(f"{self.local.name}.mirror")):
            yield self._read()

    @property
    def _record_path(self) -> Path:
        return self.local.with_name(f".{self.local.name}.mirror.json")

    def _read(self) -> Copied:
        """Read the record; without one of this remote directory it is empty, and everything is copied again."""
        assert self.remote is not None
        path = self._record_path
        if not path.exists():
            return {}
        with reading(
            path, StorageError, "delete it: what is at the URI is copied again"
        ):
            record = json.loads(path.read_text(encoding="utf-8"))
            return record["files"] if record["uri"] == self.remote.uri else {}

    def _save(self, record: Copied) -> None:
        assert self.remote is not None
        write_text(
            self._record_path, json.dumps({"uri": self.remote.uri, "files": record})
        )


def _order(name: str) -> tuple[int, str]:
    """Return what sorts names: the rank of a manifest, which is copied after all others (0), and the name."""
    file_name = name.rsplit("/", 1)[-1]
    rank = _MANIFESTS.index(file_name) + 1 if file_name in _MANIFESTS else 0
    return rank, name


def _below(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(f"{folder}/")


def _begins_with(path: Path, beginning: Path) -> bool:
    """Whether the bytes of `path` begin with those of another file."""
    with path.open("rb") as whole, beginning.open("rb") as part:
        while piece := part.read(_PIECE_BYTES):
            if whole.read(len(piece)) != piece:
                return False
    return True


def _private(name: str) -> bool:
    return any(
        part.startswith(".") or part.endswith((".tmp", ".part"))
        for part in name.split("/")
    )


def _local_stamp(path: Path) -> Stamp:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
