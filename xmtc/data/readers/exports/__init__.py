"""Formats that other tools write, one class each. The first that recognises a file reads it."""

from pathlib import Path

from xmtc.data.readers.exports.annif_folder import AnnifFolder
from xmtc.data.readers.exports.argilla import Argilla
from xmtc.data.readers.exports.base import Export, Sample
from xmtc.data.readers.exports.label_folders import LabelFolders
from xmtc.data.readers.exports.label_studio import LabelStudio
from xmtc.data.readers.exports.lines import AnnifTsv, FastText, Svmlight
from xmtc.data.readers.exports.prodigy import Prodigy
from xmtc.data.readers.exports.spacy import SpacyCats

EXPORTS: tuple[type[Export], ...] = (
    LabelStudio,
    Prodigy,
    Argilla,
    SpacyCats,
    FastText,
    AnnifTsv,
    Svmlight,
    AnnifFolder,
    LabelFolders,
)
"""All formats, in the order in which they are tried. `identity` is the `source.kind`."""


def recognised(path: Path) -> type[Export] | None:
    """Return the format of another tool that a file or folder has; None if none recognises it."""
    sample = Sample.of(path)
    return next((export for export in EXPORTS if export.recognises(sample)), None)


__all__ = [
    "EXPORTS",
    "AnnifFolder",
    "AnnifTsv",
    "Argilla",
    "FastText",
    "LabelFolders",
    "LabelStudio",
    "Prodigy",
    "SpacyCats",
    "Svmlight",
    "recognised",
]
