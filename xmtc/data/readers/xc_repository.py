"""Data sets in the layouts of the Extreme Classification Repository and of the systems that read it.

- `json` (LF- sets): `trn.json.gz`, `tst.json.gz` with `uid`, `title`, `content`, `target_ind`; `lbl.json.gz`.
- `sparse`: label matrices `trn_X_Y.txt`, `tst_X_Y.txt` (a line `rows columns`, then `label:1 label:1` a document) and
  one line of raw text a document.
- `texts`: `train_raw_texts.txt` with `train_labels.txt`, the same for `test`: labels separated by blanks.
"""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config
from xmtc.data.parallel import MapUnordered
from xmtc.data.progress import Progress
from xmtc.data.readers.base import Document, LabelInfo, Rejected, check_characters
from xmtc.data.readers.files import content_hash, json_lines, json_object, open_text
from xmtc.errors import DataError

# What the files of each layout are called: labels of the documents, their texts, names of the labels.
_JSON = {"train": ("trn.json",), "test": ("tst.json",)}
_MATRIX = {"train": ("trn_X_Y.txt",), "test": ("tst_X_Y.txt",)}
_RAW = {
    "train": ("raw_data/train.raw.txt", "train.raw.txt", "trn_X.txt", "train_raw_texts.txt"),
    "test": ("raw_data/test.raw.txt", "test.raw.txt", "tst_X.txt", "test_raw_texts.txt"),
}
_LISTS = {"train": ("train_labels.txt",), "test": ("test_labels.txt",)}
_TEXTS = {"train": ("train_raw_texts.txt", "train_texts.txt"), "test": ("test_raw_texts.txt", "test_texts.txt")}
_NAMES = ("raw_data/label.raw.txt", "label.raw.txt", "Y.txt", "output-items.txt", "label_map.txt")
_JSON_LABELS = ("lbl.json",)

Form = Literal["json", "sparse", "texts"]


@config
class XcRepositoryConfig:
    """A folder in a layout of the Extreme Classification Repository, with raw text."""

    kind: Literal["xc_repository"] = "xc_repository"
    directory: Annotated[str, Field(min_length=1)]
    """The data set's folder."""
    form: Form | None = None
    """`json` (trn.json.gz), `sparse` (trn_X_Y.txt), `texts` (train_labels.txt); null: the one that is there."""
    fields: Annotated[tuple[str, ...], Field(min_length=1)] = ("title", "content")
    """Keys that are joined to the text, in the `json` form; missing and empty ones are left out."""
    label_names: str | None = None
    """File in the folder with one label name a line, in the order of ids; null: a file of a usual name, if any."""

    def fingerprint(self) -> str:
        """As of Reader."""
        files = [path for split in sorted(self.provides()) for path in self._split_files(split)]
        names = self._names_file()
        settings = json.dumps([self._form(), self.fields if self._form() == "json" else None, sorted(self.provides())])
        return f"xc_repository:{settings}:{content_hash([*files, *([names] if names else [])])}"

    def provides(self) -> frozenset[str]:
        """As of Reader."""
        test = {"json": _JSON, "sparse": _MATRIX, "texts": _LISTS}[self._form()]["test"]
        return frozenset({"train", "test"}) if self._find(test) else frozenset({"train"})

    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """As of Reader."""
        by_index = list(self.label_info().names) if self._form() == "json" else []
        for split in ("train", "test"):
            if split in self.provides():
                yield from self._read_json(split, by_index) if self._form() == "json" else self._read_lines(split)

    def label_info(self) -> LabelInfo:
        """As of Reader. Labels are `uid`s in the `json` form, otherwise as the label file or matrix numbers them."""
        path = self._names_file()
        if path is None:
            return LabelInfo()
        if self._form() == "json":
            return LabelInfo(_names_of_uids(path))
        with open_text(path) as lines:
            names = [line.strip() for line in lines]
        if self._form() == "texts":
            return LabelInfo()  # its labels already are what people read
        return LabelInfo({str(i): name or str(i) for i, name in enumerate(names)}, closed=True)

    def _read_json(self, split: str, labels: list[str]) -> Iterator[Document | Rejected]:
        path = self._split_files(split)[0]
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield self._json_row(line, f"{path}:{number}", number, split, labels)

    def _json_row(self, line: str, where: str, number: int, split: str, labels: list[str]) -> Document | Rejected:
        try:
            row = json_object(line)
        except ValueError as problem:
            return Rejected(where, str(problem))
        targets = row.get("target_ind")
        if not isinstance(targets, list):
            return Rejected(where, "no list 'target_ind'")
        unknown = [i for i in targets if not isinstance(i, int) or not 0 <= i < len(labels)]
        if unknown:
            return Rejected(where, f"label {unknown[0]} is not in the label file, which has {len(labels)} labels")
        parts = [str(row[field]) for field in self.fields if row.get(field)]
        ids = tuple(dict.fromkeys(labels[i] for i in targets))
        return _checked(where, str(row.get("uid", f"{split}:{number}")), "\n".join(parts), ids, split)

    def _read_lines(self, split: str) -> Iterator[Document | Rejected]:
        labels_path, texts_path = self._split_files(split)
        with open_text(labels_path, newline="\n") as label_lines, open_text(texts_path, newline="\n") as text_lines:
            header = next(label_lines, "").split() if self._form() == "sparse" else None
            first = 1 if header is None else 2
            number = 0
            for number, (labels, text) in enumerate(zip_longest(label_lines, text_lines), start=1):
                if labels is None or text is None:
                    short, other = (labels_path, texts_path) if labels is None else (texts_path, labels_path)
                    raise DataError(f"{short}: ends after {number - 1} documents, but {other.name} has more")
                where = f"{labels_path}:{number + first - 1}"
                try:
                    ids = _matrix_row(labels) if header is not None else tuple(dict.fromkeys(labels.split()))
                except ValueError as problem:
                    yield Rejected(where, str(problem))
                    continue
                yield _checked(where, f"{split}:{number}", text.strip(), ids, split)
        if header is not None and header[:1] != [str(number)]:
            raise DataError(f"{labels_path}:1: announces {header[:1]} documents, but {number} follow")

    def _form(self) -> Form:
        if self.form is not None:
            return self.form
        by_form: dict[Form, tuple[str, ...]] = {
            "json": _JSON["train"],
            "sparse": _MATRIX["train"],
            "texts": _LISTS["train"],
        }
        there: list[Form] = [form for form, names in by_form.items() if self._find(names)]
        if len(there) == 1:
            return there[0]
        if not Path(self.directory).is_dir():
            raise DataError(f"{self.directory}: no such folder (data.source.directory)")
        looked = ", ".join(name for names in by_form.values() for name in names)
        what = f"several layouts ({', '.join(there)})" if there else f"none of {looked} (plain, .gz or .zst)"
        raise DataError(f"{self.directory}: holds {what}; set data.source.form")

    def _split_files(self, split: str) -> list[Path]:
        if self._form() == "json":
            return [self._need(_JSON[split])]
        if self._form() == "sparse":
            return [self._need(_MATRIX[split]), self._need(_RAW[split])]
        return [self._need(_LISTS[split]), self._need(_TEXTS[split])]

    def _names_file(self) -> Path | None:
        if self.label_names is not None:
            return self._need((self.label_names,))
        return self._need(_JSON_LABELS) if self._form() == "json" else self._find(_NAMES)

    def _find(self, names: tuple[str, ...]) -> Path | None:
        paths = [Path(self.directory) / f"{name}{ending}" for name in names for ending in ("", ".gz", ".zst")]
        return next((path for path in paths if path.is_file()), None)

    def _need(self, names: tuple[str, ...]) -> Path:
        found = self._find(names)
        if found is None:
            raise DataError(f"{self.directory}: no {' or '.join(names)} (plain, .gz or .zst)")
        return found


def _matrix_row(line: str) -> tuple[str, ...]:
    """Labels of `3:1 17:1`, entries of value 0 left out.

    Raises:
        ValueError: an entry is something else.
    """
    found: dict[str, None] = {}
    for entry in line.split():
        label, _, value = entry.partition(":")
        try:
            if float(value or 1) != 0:
                found[str(int(label))] = None
        except ValueError:
            raise ValueError(f"{entry[:20]!r} is not `label:value`, two numbers; see data.source.form") from None
    return tuple(found)


def _names_of_uids(path: Path) -> dict[str, str]:
    """`uid` -> title, in the order by which `target_ind` counts.

    Raises:
        DataError: the file cannot be read, or two labels have the same `uid`.
    """
    names: dict[str, str] = {}
    for index, row in enumerate(json_lines(path)):
        uid = str(row.get("uid", index))
        if uid in names:
            raise DataError(
                f"{path}: label {index} has the uid {uid!r}, which an earlier one has too; make them differ"
            )
        names[uid] = str(row.get("title") or index)
    return names


def _checked(where: str, doc_id: str, text: str, labels: tuple[str, ...], split: str) -> Document | Rejected:
    if not text.strip():
        return Rejected(where, "no text")
    if not labels:
        return Rejected(where, "no labels")
    try:
        check_characters(doc_id, text, *labels)
    except ValueError as problem:
        return Rejected(where, str(problem))
    return Document(doc_id, text, labels, split)
