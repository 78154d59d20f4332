"""A scoring job's directory: the job, the finished blocks, and their predictions.

    _job.json                        description of the job; another job is refused
    part-00000-00000.parquet        predictions of file 0, block 0
    .done/00000-00000.json          record of a finished block: row count, checksum and bad rows
    _rejected.parquet _manifest.json  written last; then `.done` is removed

Parts and records are written atomically, the part first. If a process dies in between, the part has no record, and the
next attempt writes it again. If the output is at a URI, workers write there directly.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from xmtc.data.readers import Rejected
from xmtc.errors import DataError
from xmtc.files import TEMPORARY, parse_json, reading, writing
from xmtc.predict.filters import Threshold
from xmtc.predict.request import Request
from xmtc.score.destination import Destination
from xmtc.score.inputs import JOB, InputFile, TextColumns

logger = logging.getLogger(__name__)

FORMAT = "xmtc-scores-5"
_PARALLEL_READS = 8
MANIFEST = "_manifest.json"
REJECTED = "_rejected.parquet"
DONE = ".done"
"""Folder of the records of finished blocks."""
SCHEMA = pa.schema({"block": pa.string(), "where": pa.string(), "reason": pa.string()})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that, together with model and input, determine the bytes of the output.

    Attributes:
        top_k: maximum number of labels per document.
        threshold: leave out labels below this probability; `tuned` or a rule: those that the model's decision or that
            of the rule does not give; None: keep the `top_k`.
        include: the only labels to score, see `LabelFilter`; None: all.
        exclude: labels not to score.
        shortlist: number of labels per document that an index finds and that get logits; None: all labels get them.
        release: what must be expected of a document, such as `expected_recall>=0.8`, to be released; None: no column.
        evidence: add what supports each label most.
        bfloat16: compute under bfloat16 autocast.
        block_rows: rows per block.
        tokens_per_batch: content tokens per batch, including padding.
        columns: columns of id and text.
    """

    top_k: int = 10
    threshold: Threshold = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    shortlist: int | None = None
    release: str | None = None
    evidence: bool = False
    bfloat16: bool = True
    block_rows: int = 2048
    tokens_per_batch: int = 4096
    columns: TextColumns = field(default_factory=TextColumns)

    def request(self) -> Request:
        """Return what is asked of the model for each block."""
        return Request(
            top_k=self.top_k,
            threshold=self.threshold,
            evidence=self.evidence,
            include=self.include,
            exclude=self.exclude,
            shortlist=self.shortlist,
        )


@dataclass(frozen=True)
class Job:
    """The description of a job for its workers.

    Attributes:
        model: directory of the exported model on this machine.
        model_digest: digest of the model's files.
        source: where other machines find the model: path, URI, or owner/name on the Hub.
        output: where parts are written.
        files: files to score.
        settings: see `Settings`.
    """

    model: Path
    model_digest: str
    source: str
    output: Destination
    files: tuple[InputFile, ...]
    settings: Settings

    @cached_property
    def description(self) -> bytes:
        """The content of `_job.json`."""
        return (json.dumps(self.identity(), indent=2) + "\n").encode()

    def identity(self) -> dict[str, Any]:
        """Describe what must be unchanged for a job to continue. Engine, number of workers and locations may change."""
        files = [{"name": file.name, "digest": file.digest} for file in self.files]
        return to_jsonable_python(
            {
                "format": FORMAT,
                "model": self.model_digest,
                "input": files,
                "settings": self.settings,
            }
        )


@dataclass(frozen=True)
class Record:
    """A finished block.

    Attributes:
        block: name of the block.
        rows: number of documents in its part.
        size: bytes of its part.
        sha256: SHA-256 of its part.
        released: number of documents released; None without a bar.
        rejected: (where, reason) of its bad rows.
    """

    block: str
    rows: int
    size: int
    sha256: str
    rejected: tuple[tuple[str, str], ...]
    released: int | None = None

    @property
    def part(self) -> str:
        """File name of the block's predictions."""
        return f"part-{self.block}.parquet"


def open_job(job: Job, *, overwrite: bool) -> list[Record]:
    """Create the output directory, or find the blocks that an earlier attempt at the same job has finished.

    Args:
        job: the job.
        overwrite: delete the output of another job, or of this job if it was complete. Blocks of an incomplete attempt
            at this job are kept.

    Another job without output, such as one that failed because of unknown labels, is replaced.

    Returns:
        The finished blocks. Where a file has changed since an incomplete attempt, as one that could not be read, these
        are blocks of the other files.

    Raises:
        DataError: the directory holds another job's output or other files.
    """
    what = "the files of an earlier attempt cannot be read"
    with reading(job.output, fix="remove it, or give another --output", what=what):
        return _open(job, overwrite=overwrite)


def check_destination(output: Destination) -> set[str]:
    """List the files of an output, which may not exist yet.

    Raises:
        DataError: it holds something else than a job.
        StorageError: it cannot be written.
    """
    names = output.names()
    if JOB not in names and not all(name.endswith(TEMPORARY) for name in names):
        raise DataError(
            f"{output}: has files in it, but no scoring job: give a new or an empty directory"
        )
    output.check()
    return names


def _open(job: Job, *, overwrite: bool) -> list[Record]:
    names = check_destination(job.output)
    stored = job.output.read(JOB)
    before = None if stored is None else parse_json(stored)
    if before is not None:
        before = _continued(job, before, names, overwrite=overwrite)
    if before is None:
        with writing(job.output):
            job.output.write(JOB, job.description)
    if MANIFEST in names:
        logger.info(
            "%s: this job is complete; only damaged parts are scored again (use --overwrite to score everything again)",
            job.output,
        )
    return _finished(job.output, names)


def _continued(
    job: Job, before: dict[str, Any], names: set[str], *, overwrite: bool
) -> dict[str, Any] | None:
    """Remove what an earlier job has left that this one does not continue; None if its description is to be replaced.

    Args:
        job: the job.
        before: description of the earlier job.
        names: files of the output; removed ones are taken out.
        overwrite: see `open_job`.
    """
    replaced_files = (
        _replaced(before, job.identity()) if MANIFEST not in names else frozenset()
    )
    if replaced_files:
        logger.warning(
            "%s: input files that have changed are scored again: %d",
            job.output,
            len(replaced_files),
        )
        starts = tuple(
            f"{place}{number}-"
            for number in replaced_files
            for place in ("part-", f"{DONE}/")
        )
        for name in [name for name in names if name.startswith(starts)]:
            job.output.remove(name)
            names.remove(name)
        return None
    difference = _difference(before, job.identity())
    has_parts = any(map(_is_part, names))
    if difference and has_parts and not overwrite:
        raise DataError(
            f"{job.output}: holds the output of another job ({difference} changed): give another --output, or "
            "--overwrite to replace it"
        )
    is_complete = MANIFEST in names and not any(map(_is_record, names))
    if difference or (overwrite and is_complete):
        _clear(job.output, names)
        names.clear()
        return None
    return before


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet")


def _is_record(name: str) -> bool:
    """Whether a file is the record of a block; beside a manifest, it is newer."""
    return name.startswith(f"{DONE}/") and name.endswith(".json")


def _replaced(before: dict[str, Any], now: dict[str, Any]) -> frozenset[str]:
    """Return the numbers of the input files whose content alone differs between two jobs; none if more differs."""
    if before | {"input": None} != now | {"input": None}:
        return frozenset()
    files_before = before["input"]
    files_now = now["input"]
    if [file["name"] for file in files_before] != [file["name"] for file in files_now]:
        return frozenset()
    numbers = []
    for number, (old, new) in enumerate(zip(files_before, files_now, strict=True)):
        if old["digest"] != new["digest"]:
            numbers.append(f"{number:05d}")
    return frozenset(numbers)


def _check_own(job: Job) -> None:
    """Raise DataError if the output has been taken by another job, or removed."""
    stored = job.output.read(JOB) or b"{}"
    if (
        stored != job.description
        and _difference(parse_json(stored), job.identity()) is not None
    ):
        raise DataError(
            f"{job.output}: removed, or taken by another job, since this one began; give each its own"
        )


def publish(
    job: Job, block: str, table: pa.Table, rejected: Sequence[Rejected]
) -> Record:
    """Write a block's part and its record atomically.

    Raises:
        DataError: another job has taken the output, or it has been removed.
        StorageError: they cannot be written, for example because the disk is full.
    """
    _check_own(job)
    content = _parquet(table, compression="zstd")
    sha256 = hashlib.sha256(content).hexdigest()
    reasons = tuple((row.where, row.reason) for row in rejected)
    released = (
        sum(table["release"].to_pylist()) if "release" in table.column_names else None
    )
    record = Record(block, table.num_rows, len(content), sha256, reasons, released)
    with writing(f"{job.output}/{record.part}"):
        job.output.write(record.part, content)
        job.output.write(f"{DONE}/{block}.json", json.dumps(asdict(record)).encode())
    return record


def _parquet(table: pa.Table, compression: str = "snappy") -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=compression)
    return sink.getvalue().to_pybytes()


def finish(job: Job, records: Iterable[Record]) -> dict[str, Any]:
    """Write _rejected.parquet and _manifest.json, and remove the records.

    Returns:
        The manifest.

    Raises:
        DataError: see `publish`.
        StorageError: they cannot be written.
    """
    _check_own(job)
    records = sorted(records, key=lambda record: record.block)
    rejected = []
    for record in records:
        for where, reason in record.rejected:
            rejected.append({"block": record.block, "where": where, "reason": reason})
    parts = [_part_of(record) for record in records]
    totals = {
        "documents": sum(record.rows for record in records),
        "rejected": len(rejected),
    }
    if job.settings.release is not None:
        totals["released"] = sum(record.released or 0 for record in records)
    manifest = job.identity() | totals | {"parts": parts}
    with writing(job.output):
        job.output.write(REJECTED, _parquet(pa.Table.from_pylist(rejected, SCHEMA)))
        job.output.write(MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
        for name in job.output.names():
            if name.startswith(f"{DONE}/") or name.endswith(TEMPORARY):
                job.output.remove(name)
    return manifest


def _part_of(record: Record) -> dict[str, Any]:
    """Describe a part in the manifest."""
    part: dict[str, Any] = {
        "path": record.part,
        "rows": record.rows,
        "size": record.size,
        "sha256": record.sha256,
        "rejected": len(record.rejected),
    }
    if record.released is not None:
        part["released"] = record.released
    return part


def _finished(output: Destination, names: set[str]) -> list[Record]:
    """Find the blocks whose part matches its record; the others are scored again."""
    records = {record.block: record for record in _listed(output)}
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for content in pool.map(output.read, sorted(filter(_is_record, names))):
            if content is not None:  # another process may have removed it meanwhile
                record = TypeAdapter(Record).validate_json(content)
                records[record.block] = record
        ordered = [records[block] for block in sorted(records)]
        are_whole = pool.map(
            lambda record: output.holds(record.part, record.size, record.sha256),
            ordered,
        )
        return [
            record
            for record, is_whole in zip(ordered, are_whole, strict=True)
            if is_whole
        ]


def _listed(output: Destination) -> list[Record]:
    """Read the records of a complete job from its manifest; empty if there is none."""
    manifest = output.read(MANIFEST)
    table = output.read(REJECTED)
    if manifest is None:
        return []
    rejected: dict[str, list[tuple[str, str]]] = {}
    for row in pq.read_table(pa.BufferReader(table or b"")).to_pylist():
        rejected.setdefault(row["block"], []).append((row["where"], row["reason"]))
    records = []
    for part in parse_json(manifest)["parts"]:
        block = part["path"].removeprefix("part-").removesuffix(".parquet")
        rows = tuple(rejected.get(block, ()))
        records.append(
            Record(
                block,
                part["rows"],
                part["size"],
                part["sha256"],
                rows,
                part.get("released"),
            )
        )
    return records


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Describe what differs between two jobs' identities; None if nothing does."""
    for part in ("format", "model", "input"):
        if before.get(part) != now[part]:
            return part
    earlier = before.get("settings", {})
    changed = [
        key for key, value in now["settings"].items() if earlier.get(key) != value
    ]
    return ", ".join(changed) or None


def _clear(output: Destination, names: set[str]) -> None:
    """Remove a job's files, `_job.json` last. If this is interrupted, --overwrite can still clear the directory."""
    own = {
        name
        for name in names
        if _is_part(name) or name.startswith(f"{DONE}/") or name.endswith(TEMPORARY)
    }
    for name in (MANIFEST, REJECTED, *sorted(own), JOB):
        output.remove(name)
