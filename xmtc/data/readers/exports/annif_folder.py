"""Annif's folders of full texts: `a.txt` with the document, `a.key` or `a.tsv` with its subjects."""

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.exports.base import ID, LABELS, Export, Sample
from xmtc.data.readers.files import open_text
from xmtc.data.readers.table import Row
from xmtc.errors import DataError

_SUBJECTS = (".key", ".tsv")
"""Endings of files of subjects: a label on each line, or an IRI, a tab and its label."""


class AnnifFolder(Export):
    """A folder with two files for each document. Texts without subjects are left out: nobody has judged them."""

    identity = "annif_folder"
    what = "Annif"

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        texts = {Path(name).stem for name in sample.names if name.endswith(".txt")}
        subjects = {
            Path(name).stem for name in sample.names if name.endswith(_SUBJECTS)
        }
        return len(texts & subjects) > 1

    @override
    def parts(self, path: Path) -> list[Path]:
        """List the texts and their subjects."""
        return sorted(
            child for child in path.iterdir() if child.suffix in (".txt", *_SUBJECTS)
        )

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        texts = sorted(path.glob("*.txt"))
        if not texts:
            raise DataError(
                f"{path}: no .txt files in this folder; give the folder of an Annif corpus"
            )
        for number, text in enumerate(texts, start=1):
            subjects = [
                text.with_suffix(ending)
                for ending in _SUBJECTS
                if text.with_suffix(ending).is_file()
            ]
            if not subjects:
                yield Rejected(
                    str(text), "no file of subjects beside it", unjudged=True
                )
                continue
            with open_text(text) as file:
                cells = {
                    ID: text.stem,
                    "text": file.read(),
                    LABELS: _labels(subjects[0]),
                }
            yield Row(cells, str(text), number)

    @override
    def count(self, path: Path) -> int | None:
        """The texts."""
        return len(list(path.glob("*.txt")))


def _labels(path: Path) -> list[str]:
    if path.stat().st_size == 0:
        return []
    with open_text(path) as lines:
        return [line.split("\t")[0].strip() for line in lines if line.strip()]
