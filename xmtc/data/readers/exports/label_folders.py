"""A folder for each label, with a file for each text, as scikit-learn's `load_files` reads them."""

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.exports.base import ID, LABELS, Export, Sample
from xmtc.data.readers.files import open_text
from xmtc.data.readers.table import Row
from xmtc.errors import DataError

_TEXTS = frozenset({"", ".txt", ".text", ".md"})
"""Endings of texts."""
_SPLITS = frozenset({"train", "training", "trn", "dev", "validation", "val", "test"})
"""Folders of these names hold splits, not a label."""


class LabelFolders(Export):
    """Folders such as `sport/001.txt` and `law/002.txt`: each text has the label that its folder is called."""

    identity = "label_folders"
    what = "a folder for each label"

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        if not sample.path.is_dir():
            return False
        folders = _folders(sample.path)
        files = [path for folder in folders for path in _visible(folder)]
        return (
            len(folders) > 1
            and _SPLITS.isdisjoint(folder.name.lower() for folder in folders)
            and len(files) > len(folders)
            and all(path.is_file() and path.suffix.lower() in _TEXTS for path in files)
        )

    @override
    def parts(self, path: Path) -> list[Path]:
        """List the texts."""
        return [text for folder in _folders(path) for text in _visible(folder)]

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        texts = self.parts(path)
        if not texts:
            raise DataError(
                f"{path}: no folders with texts here; give the folder that holds one for each label"
            )
        for number, text in enumerate(texts, start=1):
            name = f"{text.parent.name}/{text.name}"
            if text.stat().st_size == 0:
                yield Rejected(str(text), "the file is empty")
                continue
            with open_text(text) as file:
                cells = {ID: name, "text": file.read(), LABELS: [text.parent.name]}
            yield Row(cells, str(text), number)

    @override
    def count(self, path: Path) -> int | None:
        """The texts."""
        return len(self.parts(path))


def _folders(path: Path) -> list[Path]:
    return [child for child in _visible(path) if child.is_dir()]


def _visible(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if not child.name.startswith("."))
