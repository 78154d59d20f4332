"""Write and read Arrow and Parquet files. Every file of Arrow's that xmtc writes comes from here."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from xmtc.files import replacing_file


def write_arrow(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Write record batches as an Arrow IPC file.

    It is not replaced whole: shards lie in a folder that is published whole, and waiting for the disk takes time.

    Args:
        path: the file.
        schema: schema of every batch.
        batches: written one after the other, so that only one of them has to be in memory.

    Raises:
        OSError: the file cannot be written.
    """
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read_batch(path: Path) -> pa.RecordBatch:
    """Memory-map the record batch of an Arrow file that has one; reading a column copies nothing.

    Raises:
        ValueError: the file has none, or several.
        ArrowException: it is no Arrow file.
        OSError: it cannot be read.
    """
    file = pa.ipc.open_file(pa.memory_map(str(path)))
    if file.num_record_batches != 1:
        raise ValueError(f"{file.num_record_batches} record batches instead of one")
    return file.get_batch(0)


def read_arrow(path: Path) -> pa.Table:
    """Memory-map a whole Arrow file."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write tables as one Parquet file, compressed with Zstandard, which replaces an older one whole.

    Args:
        path: the file.
        schema: schema of every table.
        tables: written one after the other, so that only one of them has to be in memory.

    Raises:
        OSError: the file cannot be written; the old one is unharmed.
    """
    with (
        replacing_file(path) as partial,
        pq.ParquetWriter(partial, schema, compression="zstd") as writer,
    ):
        for table in tables:
            writer.write_table(table)
