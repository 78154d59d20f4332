"""Data sets in the layouts of the Extreme Classification Repository and of the systems that read it.

- `json` (LF- sets): `trn.json.gz`, `tst.json.gz` with `uid`, `title`, `content`, `target_ind`; `lbl.json.gz`.
- `sparse`: label matrices `trn_X_Y.txt`, `tst_X_Y.txt` (a line `rows columns`, then `label:1 label:1` a document) and
  one line of raw text per document.
- `texts`: `train_raw_texts.txt` with `train_labels.txt`, the same for `test`: labels separated by blanks.
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import (
    LONGEST_DOCUMENT,
    Document,
    LabelInfo,
    Reader,
    Rejected,
    longest_row,
    quoted_cell,
    row_too_long,
    sound,
)
from xmtc.data.readers.cells import label_of
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.endings import COMPRESSIONS
from xmtc.data.readers.files import bounded_lines, content_hash, open_text
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.table import Row
from xmtc.errors import DataError
from xmtc.track.progress import Progress

if TYPE_CHECKING:
    from xmtc.data.readers.config import XcRepositoryConfig

XcForm = Literal["json", "sparse", "texts"]
# Names of the files of each split in each layout: labels of the documents, then their texts.
_FILES: dict[XcForm, dict[str, tuple[tuple[str, ...], ...]]] = {
    "json": {"train": (("trn.json",),), "test": (("tst.json",),)},
    "sparse": {
        "train": (
            ("trn_X_Y.txt",),
            (
                "raw_data/train.raw.txt",
                "train.raw.txt",
                "trn_X.txt",
                "train_raw_texts.txt",
            ),
        ),
        "test": (
            ("tst_X_Y.txt",),
            (
                "raw_data/test.raw.txt",
                "test.raw.txt",
                "tst_X.txt",
                "test_raw_texts.txt",
            ),
        ),
    },
    "texts": {
        "train": (("train_labels.txt",), ("train_raw_texts.txt", "train_texts.txt")),
        "test": (("test_labels.txt",), ("test_raw_texts.txt", "test_texts.txt")),
    },
}
_NAMES = (
    "raw_data/label.raw.txt",
    "label.raw.txt",
    "Y.txt",
    "output-items.txt",
    "label_map.txt",
)
_JSON_LABELS = ("lbl.json",)
_TARGETS = "target_ind"
_JSON = ColumnsConfig(id="uid", text=("title", "content"), labels=_TARGETS)
_END = ""
"""Stands for a line after the last one; a line has at least its end."""


class XcRepositoryReader(Reader):
    """A `Reader`.

    Args:
        settings: the `data.source` section.
    """

    def __init__(self, settings: "XcRepositoryConfig") -> None:
        self.settings = settings
        self._root = Path(settings.directory)

    @override
    def fingerprint(self) -> str:
        return f"xc_repository:{self._form()}:{sorted(self.provides())}:{content_hash(self.files())}"

    @override
    def files(self) -> list[Path]:
        """List the files of the layout that the folder holds.

        Raises:
            DataError: the folder holds no known layout.
        """
        files: list[Path] = []
        for split in sorted(self.provides()):
            files += self.split_files(split)
        names = self._names_file()
        if names is not None:
            files.append(names)
        return files

    def split_files(self, split: str) -> list[Path]:
        """List the files of a split: labels, then texts; one file where it holds both.

        Raises:
            DataError: one is missing.
        """
        return [self._need(names) for names in _FILES[self._form()][split]]

    @override
    def provides(self) -> frozenset[str]:
        labels, *_ = _FILES[self._form()]["test"]
        return (
            frozenset({"train", "test"}) if self._find(labels) else frozenset({"train"})
        )

    @override
    def read(
        self,
        map_unordered: MapUnordered,
        progress: Progress,
        longest: int = LONGEST_DOCUMENT,
    ) -> Iterator[Document | Rejected]:
        by_index = list(self.label_info().names) if self._form() == "json" else []
        for split in ("train", "test"):
            if split not in self.provides():
                continue
            if self._form() == "json":
                yield from self._read_json(split, by_index, longest)
            else:
                yield from self._read_lines(split, longest)

    @override
    def label_info(self) -> LabelInfo:
        """Labels are `uid`s in the `json` form, otherwise as the label file or matrix numbers them."""
        path = self._names_file()
        if path is None:
            return LabelInfo()
        if self._form() == "json":
            return LabelInfo(_names_of_uids(path))
        if self._form() == "texts":
            return LabelInfo()  # its labels already are what people read
        with open_text(path, newline="\n") as lines:
            names = [label_of(line) or str(i) for i, line in enumerate(lines)]
        matrix = self._need(_FILES["sparse"]["train"][0])
        with open_text(matrix, newline="\n") as lines:
            _, *columns = next(lines, "").split()
        if columns != [str(len(names))]:
            raise DataError(
                f"{path}: {len(names)} names, but {matrix.name}:1 announces {columns} labels; correct it"
            )
        return LabelInfo({str(i): name for i, name in enumerate(names)}, closed=True)

    @override
    def fields(self) -> tuple[str, ...]:
        """Title and content, or one text."""
        return _JSON.fields() if self._form() == "json" else super().fields()

    def _read_json(
        self, split: str, labels: list[str], longest: int
    ) -> Iterator[Document | Rejected]:
        for row in JsonLines().rows(self.split_files(split)[0], None, longest):
            yield (
                row
                if isinstance(row, Rejected)
                else self._json_document(row, split, labels)
            )

    def _json_document(
        self, row: Row, split: str, labels: list[str]
    ) -> Document | Rejected:
        targets = row.cells.get("target_ind")
        if not isinstance(targets, list):
            return Rejected(row.where, "no list 'target_ind'")
        unknown = [
            i for i in targets if not isinstance(i, int) or not 0 <= i < len(labels)
        ]
        if unknown:
            return Rejected(
                row.where,
                f"label {unknown[0]} is not in the label file, which has {len(labels)} labels",
            )
        cells = {name: row.cells.get(name) for name in _JSON.names()} | {
            _TARGETS: [labels[i] for i in targets]
        }
        return _JSON.document(cells, row.where, f"{split}:{row.number}", split)

    def _read_lines(self, split: str, longest: int) -> Iterator[Document | Rejected]:
        labels_path, texts_path = self.split_files(split)
        with (
            open_text(labels_path, newline="\n") as label_lines,
            open_text(texts_path, newline="\n") as text_lines,
        ):
            header = next(label_lines, "").split() if self._form() == "sparse" else None
            first = 1 if header is None else 2
            number = 0
            texts = bounded_lines(text_lines, longest_row(longest))
            lines = zip_longest(label_lines, texts, fillvalue=_END)
            for number, (labels, text) in enumerate(lines, start=1):
                if labels == _END or text == _END:
                    shorter = labels_path if labels == _END else texts_path
                    longer = texts_path if labels == _END else labels_path
                    raise DataError(
                        f"{shorter}: ends after {number - 1} documents, but {longer.name} has more; "
                        "each needs a line for every document"
                    )
                if text is None:
                    yield row_too_long(f"{texts_path}:{number}", longest)
                    continue
                where = f"{labels_path}:{number + first - 1}"
                try:
                    ids = _matrix_row(labels) if header is not None else labels.split()
                    cells = {"text": text.strip(), "labels": ids}
                    yield ColumnsConfig().document(
                        cells, where, f"{split}:{number}", split, longest
                    )
                except ValueError as problem:
                    yield Rejected(where, str(problem))
        if header is not None and header[:1] != [str(number)]:
            announced = header[0] if header else "no"
            raise DataError(
                f"{labels_path}:1: announces {announced} documents, but {number} follow; correct the first line, or "
                "copy the file again"
            )

    def _form(self) -> XcForm:
        if self.settings.form is not None:
            return self.settings.form
        forms = self.complete_forms()
        if len(forms) == 1:
            return forms[0]
        if not self._root.is_dir():
            raise DataError(f"{self._root}: no such folder (data.source.directory)")
        if forms:
            raise DataError(
                f"{self._root}: holds several layouts ({', '.join(forms)}); give data.source.form={forms[0]}, or "
                "another one of them"
            )
        wanted = [
            " with ".join(names[0] for names in files["train"])
            for files in _FILES.values()
        ]
        raise DataError(
            f"{self._root}: holds none of {', '.join(wanted)} (plain or compressed); give the folder with these files"
        )

    def complete_forms(self) -> list[XcForm]:
        """List the layouts of which the folder has all files of training documents and their labels."""
        needed: dict[XcForm, tuple[tuple[str, ...], ...]] = {
            form: files["train"] for form, files in _FILES.items()
        }
        needed["json"] = (*needed["json"], _JSON_LABELS)
        return [
            form
            for form, files in needed.items()
            if all(self._find(names) is not None for names in files)
        ]

    def _names_file(self) -> Path | None:
        return (
            self._need(_JSON_LABELS) if self._form() == "json" else self._find(_NAMES)
        )

    def _find(self, names: tuple[str, ...]) -> Path | None:
        for name in names:
            for ending in ("", *COMPRESSIONS):
                path = self._root / f"{name}{ending}"
                if path.is_file():
                    return path
        return None

    def _need(self, names: tuple[str, ...]) -> Path:
        path = self._find(names)
        if path is None:
            raise DataError(
                f"{self._root}: no {' or '.join(names)} (plain or compressed); copy the file to this folder"
            )
        return path


def reader_of_folder(settings: "XcRepositoryConfig") -> XcRepositoryReader | None:
    """Return the reader of a folder that has the files of a layout, with texts; None if it has not.

    Raises:
        DataError: it has several layouts, or lacks a file of the one that the settings name.
    """
    reader = XcRepositoryReader(settings)
    if settings.form is None and not reader.complete_forms():
        return None
    reader.files()
    return reader


def _matrix_row(line: str) -> list[str]:
    """Parse the labels of `3:1 17:1`, without entries of value 0.

    Raises:
        ValueError: an entry is something else.
    """
    labels: dict[str, None] = {}
    for entry in line.split():
        label, _, value = entry.partition(":")
        try:
            if float(value or 1) != 0:
                labels[str(int(label))] = None
        except ValueError:
            raise ValueError(
                f"{quoted_cell(entry)} is not `label:value`, two numbers; see data.source.form"
            ) from None
    return list(labels)


def _names_of_uids(path: Path) -> dict[str, str]:
    """Map `uid` to title, in the order by which `target_ind` counts.

    Raises:
        DataError: the file cannot be read, or two labels have the same `uid`.
    """
    names: dict[str, str] = {}
    for index, row in enumerate(sound(JsonLines().rows(path, None))):
        uid = label_of(row.cells.get("uid")) or str(index)
        if uid in names:
            raise DataError(
                f"{path}: label {index} has the uid {uid!r}, which an earlier one has too; change one"
            )
        names[uid] = label_of(row.cells.get("title")) or str(index)
    return names
