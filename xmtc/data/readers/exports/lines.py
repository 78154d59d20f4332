"""Formats of one document on each line, without a header: fastText, Annif's TSV, svmlight."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.exports.base import LABELS, Export, Sample
from xmtc.data.readers.files import line_count, open_text
from xmtc.data.readers.table import Row

_PREFIX = "__label__"
_IRI = re.compile(r"<[a-z][\w+.-]*:[^<>\s]+>", re.IGNORECASE)
_FEATURES = re.compile(
    r"(?P<labels>\S*)(?P<features>(?:\s+\d+:[-+.\deE]+)+)\s*(?:#.*)?"
)
"""A line of svmlight: labels, then `feature:value`, then perhaps a remark."""
_HEADER = re.compile(r"\s*\d+\s+\d+\s+\d+\s*")
"""The first line of the Extreme Classification Repository's files: documents, features, labels."""
_NAMES = {"features": ("Xf.txt", "features.txt"), "labels": ("Yf.txt", "labels.txt")}
"""Files beside one of svmlight with the words of its features, and with the names of its labels."""
_REMARK = "#"
"""How lines begin that scikit-learn writes before the documents."""
_MOST_REPEATS = 20


class LineExport(Export):
    """A document on each line."""

    def cells(self, line: str) -> dict[str, Any]:
        """Return the cells of a line.

        Raises:
            ValueError: it is no document, and the message says why.
        """
        raise NotImplementedError

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        with open_text(path, newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if self.is_remark(line) or (number == 1 and self.is_header(line)):
                    continue
                where = f"{path}:{number}"
                try:
                    yield Row(self.cells(line.rstrip("\r\n")), where, number)
                except ValueError as problem:
                    yield Rejected(where, str(problem))

    def is_header(self, line: str) -> bool:
        """Whether the first line is no document."""
        return False

    def is_remark(self, line: str) -> bool:
        """Whether a line says nothing."""
        return not line.strip()

    @override
    def count(self, path: Path) -> int | None:
        """Blank lines count too."""
        return line_count(path)


class FastText(LineExport):
    """Lines such as `__label__sport __label__art A text`; labels may stand anywhere in the line."""

    identity = "fasttext"
    what = "fastText"

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        lines = sample.lines(least=2)
        return (
            bool(lines)
            and sum(_PREFIX in line for line in lines) >= 0.8 * len(lines)
            and not sample.objects
        )

    @override
    def cells(self, line: str) -> dict[str, Any]:
        words = line.split()
        labels = [
            word.removeprefix(_PREFIX).rstrip(",;")
            for word in words
            if word.startswith(_PREFIX)
        ]
        return {
            "text": " ".join(word for word in words if not word.startswith(_PREFIX)),
            LABELS: labels,
        }


class AnnifTsv(LineExport):
    """Lines of a text, a tab and subjects as IRIs in angle brackets, as Annif's corpora have them."""

    identity = "annif_tsv"
    what = "Annif"

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        cells = [line.split("\t") for line in sample.lines(least=2)]
        return bool(cells) and all(
            len(row) == 2 and _IRI.match(row[1].strip()) for row in cells
        )

    @override
    def cells(self, line: str) -> dict[str, Any]:
        text, tab, subjects = line.partition("\t")
        if not tab:
            raise ValueError("no tab between text and subjects")
        return {"text": text, LABELS: [iri[1:-1] for iri in _IRI.findall(subjects)]}


class Svmlight(LineExport):
    """Lines such as `3,17 5:0.2 9:1`: numbers of labels, then features. There is no text in such files.

    A feature stands for a word, once for each whole of its value: the word of that line in `Xf.txt` in the same folder,
    or `f5`. Labels are named by `Yf.txt` if it is there.
    """

    identity = "svmlight"
    what = "svmlight"

    def __init__(self) -> None:
        self._words: list[str] = []
        self._names: list[str] = []

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        lines = [
            line
            for line in sample.lines(least=2)
            if not _HEADER.fullmatch(line) and not line.startswith(_REMARK)
        ]
        return bool(lines) and all(_FEATURES.fullmatch(line) for line in lines)

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        self._words = _names_beside(path, "features")
        self._names = _names_beside(path, "labels")
        yield from super().rows(path, columns, longest)

    @override
    def is_header(self, line: str) -> bool:
        return _HEADER.fullmatch(line) is not None

    @override
    def is_remark(self, line: str) -> bool:
        return not line.strip() or line.startswith(_REMARK)

    @override
    def cells(self, line: str) -> dict[str, Any]:
        match = _FEATURES.fullmatch(line)
        if match is None:
            raise ValueError("not labels and features, such as 3,17 5:0.2 9:1")
        labels = [
            _named(label, self._names, "")
            for label in match["labels"].split(",")
            if label
        ]
        words: list[str] = []
        for feature in match["features"].split():
            number, _, value = feature.partition(":")
            repeats = (
                min(max(1, int(float(value))), _MOST_REPEATS) if float(value) > 0 else 0
            )
            words += [_named(number, self._words, "f")] * repeats
        return {"text": " ".join(words), LABELS: labels}


def _names_beside(path: Path, kind: str) -> list[str]:
    for name in _NAMES[kind]:
        beside = path.with_name(name)
        if beside.is_file() and beside != path:
            with open_text(beside, newline="\n") as lines:
                return [line.strip() for line in lines]
    return []


def _named(number: str, names: list[str], prefix: str) -> str:
    place = int(number) if number.isdecimal() else -1
    return (
        names[place]
        if 0 <= place < len(names) and names[place]
        else f"{prefix}{number}"
    )
