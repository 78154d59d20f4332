"""The output of a scoring job: a directory, or a URI that machines without a shared file system write to."""

from pathlib import Path
from tempfile import TemporaryDirectory

from xmtc.errors import DataError
from xmtc.files import TEMPORARY, file_sha256, read_file, replacing_file, writing
from xmtc.storage.config import on_this_machine
from xmtc.storage.remote import Remote


class Folder:
    """A directory of this machine, or of a file system that all machines share.

    Files are written atomically. A name may contain one folder, such as `.done/x.json`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> set[str]:
        """List all files, including those of others; a folder that is not the job's by its name only.

        Raises:
            DataError: the place is not a folder.
        """
        if not self.path.exists():
            return set()
        if not self.path.is_dir():
            raise DataError(
                f"{self.path}: this is a file, not a directory; give another --output"
            )
        hidden = [
            path
            for path in self.path.iterdir()
            if path.is_dir() and path.name.startswith(".")
        ]
        found = {path.name for path in self.path.iterdir()} - {
            path.name for path in hidden
        }
        return found | {
            f"{folder.name}/{path.name}"
            for folder in hidden
            for path in folder.iterdir()
        }

    def check(self) -> None:
        """Raise StorageError if nothing can be written here; leaves nothing."""
        there = next(path for path in (self.path, *self.path.parents) if path.exists())
        with writing(self.path), TemporaryDirectory(TEMPORARY, ".", there):
            pass

    def read(self, name: str) -> bytes | None:
        """Read a small file; None if it does not exist."""
        path = self.path / name
        return read_file(path) if path.exists() else None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, replacing an existing one.

        After a lost connection two workers may write the same block: each has a temporary file.
        """
        with replacing_file(self.path / name) as partial:
            partial.write_bytes(content)

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        (self.path / name).unlink(missing_ok=True)
        if "/" in name and not any((self.path / name).parent.iterdir()):
            (self.path / name).parent.rmdir()

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Whether a file is unchanged; compares the checksum, because a power failure may have damaged the file."""
        path = self.path / name
        return (
            path.is_file()
            and path.stat().st_size == size
            and file_sha256(path) == sha256
        )


class Bucket(Remote):
    """A folder at a URI, with the methods of `Folder`.

    Object stores publish a file with the request that completes its upload, without a rename.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._sizes: dict[str, int] = {}

    def __reduce__(self) -> tuple[type["Bucket"], tuple[str]]:
        """Pickle only the URI: each worker opens its connections."""
        return Bucket, (self.uri,)

    def __str__(self) -> str:
        return self.uri

    def names(self) -> set[str]:
        """List all files.

        Raises:
            DataError: the place is a file.
        """
        if self.is_file():
            raise DataError(
                f"{self.uri}: this is a file, not a folder; give another --output"
            )
        self._sizes = {name: int(size) for name, (size, _) in self.list().items()}
        return set(self._sizes)

    def check(self) -> None:
        """Raise StorageError if nothing can be written here; leaves nothing."""
        self.write(TEMPORARY, b"")
        self.remove(TEMPORARY)

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Whether a file had its size when it was listed; the store has verified the sender's checksum on upload."""
        del sha256
        return self._sizes.get(name) == size


Destination = Folder | Bucket


def destination_of(output: str | Path) -> Destination:
    """Make the place for a path, a URI or a `file://` address."""
    local = on_this_machine(str(output))
    return Bucket(str(output)) if local is None else Folder(local.absolute())
