"""JSON lines: one object a line; plain, .gz or .zst."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from xmtc.config.base import config
from xmtc.data.parallel import MapUnordered
from xmtc.data.progress import Progress
from xmtc.data.readers.base import Document, LabelInfo, Rejected
from xmtc.data.readers.columns import (
    ColumnsConfig,
    LabelFileConfig,
    check_split_column,
    label_file_info,
    table_fingerprint,
    table_splits,
)
from xmtc.data.readers.files import SplitFilesConfig, json_object, open_text


@config
class JsonlConfig:
    """JSON lines, one document a line; plain, .gz or .zst."""

    kind: Literal["jsonl"] = "jsonl"
    files: SplitFilesConfig
    """Files by split."""
    columns: ColumnsConfig = ColumnsConfig()
    """Keys of the objects."""
    labels: LabelFileConfig | None = None
    """File with the labels' names."""

    def __post_init__(self) -> None:
        check_split_column(self.files, self.columns)

    def fingerprint(self) -> str:
        """As of Reader."""
        return table_fingerprint("jsonl", self.files, self.columns, self.labels)

    def provides(self) -> frozenset[str]:
        """As of Reader."""
        return table_splits(self.files, self.columns)

    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """As of Reader."""
        for split, path in self.files.by_split():
            with open_text(path) as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        yield self._document(line, path, number, split)

    def _document(self, line: str, path: Path, number: int, split: str) -> Document | Rejected:
        where = f"{path}:{number}"
        try:
            row = json_object(line)
        except ValueError as problem:
            return Rejected(where, str(problem))
        return self.columns.document(row, where, f"{path.name}:{number}", split)

    def label_info(self) -> LabelInfo:
        """As of Reader."""
        return label_file_info(self.labels)
