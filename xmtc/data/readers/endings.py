"""What the ending of a file's name says: how it is compressed, and which format it has."""

from pathlib import Path

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
"""Compressions by the last extension of a file, in lower case."""


def ending_of(path: Path) -> str:
    """Return the last extension of a file but that of its compression, in lower case; empty if there is none."""
    for suffix in reversed(path.suffixes):
        ending = suffix.lower()
        if ending not in COMPRESSIONS:
            return ending
    return ""
