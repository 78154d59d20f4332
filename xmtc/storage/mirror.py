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
from typing import TypeVar

from xmtc.errors import StorageError
from xmtc.files import file_sha256, locked, reading, replacing_file, write_text
from xmtc.storage.remote import Remote, Stamp

logger = logging.getLogger(__name__)

_MANIFESTS = ("manifest.json", "_manifest.json", "run.json")
_PARALLEL_COPIES = 8
_ATTEMPTS = 3  # to download a file that arrives damaged

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
        self.local, self.remote = local, remote

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
            now = {name: _local_stamp(self.local / name) for name in filter(choose, self._names(folder))}
            changed = [name for name in now if record.get(name, {}).get("local") != now[name]]
            for name, there in self._in_order(changed, self._upload):
                if there is not None:
                    record[name] = {"local": now[name], "remote": there}
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

        Where both sides changed, the remote one wins: another machine has continued the run.

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
        with self._locked() as record:
            there = {name: stamp for name, stamp in self.remote.list(folder).items() if not _private(name)}
            wanted = [
                name
                for name in filter(choose, there)
                if record.get(name, {}).get("remote") != there[name] or not (self.local / name).is_file()
            ]
            for name, here in self._in_order(wanted, lambda name: self._download(name, (sha256 or {}).get(name))):
                record[name] = {"local": here, "remote": there[name]}
                self._save(record)
            for name in [n for n in self._names(folder) if choose(n) and n not in there] if exact else []:
                (self.local / name).unlink()
            # The next push uploads again what somebody deleted there.
            self._save({n: entry for n, entry in record.items() if n in there or not _below(n, folder)})

    def remove(self, folder: str) -> None:
        """Delete what is below `folder` on the remote side, what marks it as whole first."""
        if self.remote is None:
            return
        with self._locked() as record:
            for name in sorted(self.remote.list(folder), key=_order, reverse=True):
                self.remote.remove(name)
            self._save({name: entry for name, entry in record.items() if not _below(name, folder)})

    def changed_elsewhere(self, name: str) -> bool:
        """Whether the remote file is another version than the one that was last copied."""
        if self.remote is None:
            return False
        with self._locked() as record:
            known = record.get(name)
        return known is not None and self.remote.stamp(name) != known["remote"]

    def folders(self, folder: str) -> list[str]:
        """List the remote folders in `folder` that hold a `manifest.json`, and so are complete; sorted."""
        if self.remote is None:
            return []
        paths = (PurePosixPath(name) for name in self.remote.list(folder))
        return sorted(
            p.parent.name for p in paths if p.name == "manifest.json" and p.parent.parent == PurePosixPath(folder)
        )

    def _in_order(self, names: Iterable[str], copy: Callable[[str], T]) -> Iterator[tuple[str, T]]:
        """Copy several files in parallel, manifests after all others; yield each name with the result of its copy."""
        with ThreadPoolExecutor(_PARALLEL_COPIES) as pool:
            for _, grouped in groupby(sorted(names, key=_order), key=lambda name: _order(name)[0]):
                group = list(grouped)
                yield from zip(group, pool.map(copy, group), strict=True)

    def _upload(self, name: str) -> Stamp | None:
        assert self.remote is not None
        path = self.local / name
        # the process that owns it may just have removed it
        return self.remote.upload(path, name) if path.is_file() else None

    def _download(self, name: str, sha256: str | None) -> Stamp:
        assert self.remote is not None
        path = self.local / name
        with replacing_file(path) as partial:
            for _ in range(_ATTEMPTS):
                self.remote.download(name, partial)
                if sha256 is None or file_sha256(partial) == sha256:
                    break
            else:
                raise StorageError(
                    f"{self.remote.uri}/{name}: damaged there: its SHA-256 is not the manifest's; delete it and write "
                    "it again"
                )
        return _local_stamp(path)

    def _names(self, folder: str) -> list[str]:
        top = self.local / folder
        files = (path for path in top.rglob("*") if path.is_file()) if top.is_dir() else ()
        names = (path.relative_to(self.local).as_posix() for path in files)
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
        with reading(path, StorageError, "delete it: what is at the URI is copied again"):
            found = json.loads(path.read_text(encoding="utf-8"))
            return found["files"] if found["uri"] == self.remote.uri else {}

    def _save(self, record: Copied) -> None:
        assert self.remote is not None
        write_text(self._record_path, json.dumps({"uri": self.remote.uri, "files": record}))


def _order(name: str) -> tuple[int, str]:
    base = name.rsplit("/", 1)[-1]
    return (_MANIFESTS.index(base) + 1 if base in _MANIFESTS else 0, name)


def _below(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(f"{folder}/")


def _private(name: str) -> bool:
    return any(part.startswith(".") or part.endswith((".tmp", ".part")) for part in name.split("/"))


def _local_stamp(path: Path) -> Stamp:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
