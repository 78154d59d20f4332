"""Readers: one module a kind of source. A new one is added to the union here and to docs/data.md."""

from typing import Annotated

from pydantic import Discriminator

from xmtc.data.readers.base import Document, LabelInfo, Reader, Rejected
from xmtc.data.readers.csv_table import CsvConfig
from xmtc.data.readers.jsonl import JsonlConfig
from xmtc.data.readers.mimic import MimicConfig
from xmtc.data.readers.parquet import ParquetConfig
from xmtc.data.readers.pydocs import PydocsConfig
from xmtc.data.readers.synthetic import SyntheticConfig
from xmtc.data.readers.xc_repository import XcRepositoryConfig

ReaderConfig = Annotated[
    JsonlConfig | CsvConfig | ParquetConfig | XcRepositoryConfig | MimicConfig | PydocsConfig | SyntheticConfig,
    Discriminator("kind"),
]

__all__ = [
    "CsvConfig",
    "Document",
    "JsonlConfig",
    "LabelInfo",
    "MimicConfig",
    "ParquetConfig",
    "PydocsConfig",
    "Reader",
    "ReaderConfig",
    "Rejected",
    "SyntheticConfig",
    "XcRepositoryConfig",
]
