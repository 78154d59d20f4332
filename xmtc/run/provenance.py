"""Provenance of a run: versions of packages, and the commit of the checkout."""

import importlib.metadata
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "ray",
    "deepspeed",
    "faiss-cpu",
    "faiss-gpu-cu12",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "pydantic",
    "triton",
    "bitsandbytes",
)


def versions() -> dict[str, str]:
    """List the versions of Python, this package and the packages that results depend on, if installed."""
    found = {"python": platform.python_version(), "xmtc": importlib.metadata.version("xmtc")}
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
    """Read the state of the checkout this package runs from; None if it is installed, or git is absent."""
    package = Path(__file__).parents[1]
    if shutil.which("git") is None or not _git(package, "ls-files", "errors.py"):
        return None
    commit = _git(package, "rev-parse", "HEAD")
    if not commit:
        return None
    return GitState(commit=commit, dirty=bool(_git(package, "status", "--porcelain", "--untracked-files=no")))


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "--no-optional-locks", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return result.stdout.strip() if result.returncode == 0 else ""
