"""A configuration and its surroundings, written down: resolved YAML, hash, versions, commit; files replaced whole."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xmtc
from xmtc.config import yaml_tree
from xmtc.config.shape import adapter
from xmtc.errors import TrainingError

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "ray",
    "deepspeed",
    "faiss-cpu",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "pydantic",
    "triton",
    "bitsandbytes",
)


def to_plain(config: Any) -> dict[str, Any]:
    """A configuration, defaults and all, as dicts, lists and scalars in the order of the schema."""
    return adapter(type(config)).dump_python(config, mode="json")


def dump_yaml(config: Any) -> str:
    """The resolved configuration as YAML, complete; loading it gives an equal configuration."""
    return yaml_tree.dump(to_plain(config))


def config_hash(*parts: Any) -> str:
    """16 hexadecimal digits that change when any part does; parts are configurations or plain JSON data.

    Use it for a stage's fingerprint: its own section, and the fingerprints of what it reads.
    """
    plain = [to_plain(part) if dataclasses.is_dataclass(part) else part for part in parts]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Each key whose value differs, as `section.key: old -> new`."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}: {json.dumps(old)} -> {json.dumps(new)}"


def versions() -> dict[str, str]:
    """Versions of Python, this package and the packages that results depend on; absent ones are left out."""
    found = {"python": platform.python_version(), "xmtc": xmtc.__version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The commit of the checkout that this package is imported from."""

    commit: str
    dirty: bool


def git_state() -> GitState | None:
    """The state of the checkout this package runs from; None where it was installed, or git is absent."""
    package = Path(xmtc.__file__).parent
    if shutil.which("git") is None or not _git(package, "ls-files", "errors.py"):
        return None
    commit = _git(package, "rev-parse", "HEAD")
    if not commit:
        return None
    return GitState(commit=commit, dirty=bool(_git(package, "status", "--porcelain", "--untracked-files=no")))


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def file_sha256(path: Path) -> str:
    """Hash of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Replace a file whole: whoever reads it, or finds it after a crash, sees the old text or the new one.

    Raises:
        TrainingError: it cannot be written, as on a full disk; the old file is unharmed.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TrainingError(
            f"{path}: cannot be written: {error.strerror}; free space or choose another place"
        ) from error
