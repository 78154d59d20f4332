"""The output of a scoring job: a directory, or a URI that machines without a shared file system write to."""

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from xmtc.errors import DataError
from xmtc.files import file_sha256, read_file, replacing
from xmtc.storage.config import StorageConfig, is_remote


class Destination(Protocol):
    """A set of named files that are written atomically. A name may contain one folder, such as `.done/x.json`."""

    def __str__(self) -> str:
        """Return the path or URI, as users know it."""
        ...

    def names(self) -> set[str]:
        """List all files, including those of others; a folder that is not the job's may be listed by its name only.

        Raises:
            DataError: the place is not a folder.
        """
        ...

    def read(self, name: str) -> bytes | None:
        """Read a small file; None if it does not exist."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists; return whether it was written."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Write a file, replacing an existing one."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        ...

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Whether a file is unchanged since it was written."""
        ...


def destination_of(output: str | Path) -> Destination:
    """Make the place for a path, a URI or a `file://` address."""
    output = str(output)
    if output.startswith("file://"):
        output = unquote(urlsplit(output).path)
    return Bucket(output) if is_remote(output) else Folder(Path(output).absolute())


class Folder(Destination):
    """A directory of this machine, or of a file system that all machines share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @override
    def names(self) -> set[str]:
        if not self.path.exists():
            return set()
        if not self.path.is_dir():
            raise DataError(f"{self.path}: this is a file, not a directory; give another --output")
        hidden = [path for path in self.path.iterdir() if path.is_dir() and path.name.startswith(".")]
        found = {path.name for path in self.path.iterdir()} - {path.name for path in hidden}
        return found | {f"{folder.name}/{path.name}" for folder in hidden for path in folder.iterdir()}

    @override
    def read(self, name: str) -> bytes | None:
        path = self.path / name
        return read_file(path) if path.exists() else None

    @override
    def create(self, name: str, content: bytes) -> bool:
        """If several processes try this at once, only one succeeds. A full disk leaves no empty file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(content)
        except OSError:
            path.unlink()
            raise
        return True

    @override
    def put(self, name: str, content: bytes) -> None:
        """After a lost connection two workers may write the same block: each has a temporary file."""
        with replacing(self.path / name) as partial:
            partial.write_bytes(content)

    @override
    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
        if "/" in name and not any((self.path / name).parent.iterdir()):
            (self.path / name).parent.rmdir()

    @override
    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Compares the checksum, because a power failure may have damaged the file."""
        path = self.path / name
        return path.is_file() and path.stat().st_size == size and file_sha256(path) == sha256


class Bucket(Destination):
    """A folder at a URI. Object stores publish a file with the request that completes its upload, without a rename."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._sizes: dict[str, int] | None = None

    def __str__(self) -> str:
        return self.uri

    def __reduce__(self) -> tuple[type["Bucket"], tuple[str]]:
        """Pickle only the URI: each worker opens its connections."""
        return Bucket, (self.uri,)

    @property
    def _remote(self):
        return StorageConfig().remote(self.uri)

    @override
    def names(self) -> set[str]:
        if self._remote.is_file():
            raise DataError(f"{self.uri}: this is a file, not a folder; give another --output")
        self._sizes = {name: int(size) for name, (size, _) in self._remote.list().items()}
        return set(self._sizes)

    @override
    def read(self, name: str) -> bytes | None:
        return self._remote.read(name)

    @override
    def create(self, name: str, content: bytes) -> bool:
        """If several machines try this at once, only one succeeds, provided that the store supports it."""
        return self._remote.create(name, content)

    @override
    def put(self, name: str, content: bytes) -> None:
        self._remote.write(name, content)

    @override
    def remove(self, name: str) -> None:
        self._remote.remove(name)

    @override
    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Compares the size; the store has verified the sender's checksum on upload."""
        del sha256
        if self._sizes is None:
            self.names()
        assert self._sizes is not None
        return self._sizes.get(name) == size
