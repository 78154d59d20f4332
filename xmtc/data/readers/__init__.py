"""Readers, one module for each kind of source. `config` holds their settings; importing this imports no reader."""

from xmtc.data.readers.base import Document, LabelInfo, Reader, ReaderSettings, Rejected
from xmtc.data.readers.config import ReaderConfig

__all__ = [
    "Document",
    "LabelInfo",
    "Reader",
    "ReaderConfig",
    "ReaderSettings",
    "Rejected",
]
