"""A scoring job's directory: what was asked for, which blocks are done, and the parts they became.

    _job.json                        what the job is; another job is refused
    part-00000-00000.parquet        predictions of file 0, block 0
    .done/00000-00000.json          its row count, checksum and bad rows: the block is done when this is there
    _rejected.parquet _manifest.json  written last, when `.done` goes

Parts and records appear by rename, the part first. A process that dies in between leaves a part without a record, which
the next attempt writes again.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xmtc.data.readers import Rejected
from xmtc.errors import CheckpointError, DataError
from xmtc.files import file_sha256, read_file, read_json, replacing, write_text
from xmtc.score.filters import Threshold
from xmtc.score.inputs import InputFile, TextColumns

logger = logging.getLogger(__name__)

FORMAT = "xmtc-scores-1"
REJECTED = pa.schema({"block": pa.string(), "where": pa.string(), "reason": pa.string()})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides the bytes of the output, besides model and input.

    Attributes:
        top_k: most labels a document.
        threshold: leave out labels less probable than this; `tuned`: than the model's own thresholds, by label where
            it has them; None: keep the `top_k`.
        min_score: leave out labels less probable than this, whatever the thresholds say.
        include: the only labels to score, see `LabelFilter`; None: all.
        exclude: labels not to score.
        shortlist: labels of a document that an index finds and that get their logits; None: all do.
        evidence: add the words that speak most for each label.
        bfloat16: compute under bfloat16 autocast.
        block_rows: rows of a block.
        tokens_per_batch: content tokens of a batch, padding included.
        columns: where id and text are.
    """

    top_k: int = 10
    threshold: Threshold = None
    min_score: float = 0.0
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    shortlist: int | None = None
    evidence: bool = False
    bfloat16: bool = True
    block_rows: int = 2048
    tokens_per_batch: int = 4096
    columns: TextColumns = field(default_factory=TextColumns)


@dataclass(frozen=True)
class Job:
    """Everything that a worker must know.

    Attributes:
        model: directory of the exported model.
        model_digest: of its files.
        output: where parts go.
        files: what to score.
        settings: how.
    """

    model: Path
    model_digest: str
    output: Path
    files: tuple[InputFile, ...]
    settings: Settings

    def identity(self) -> dict[str, Any]:
        """What must be the same for a job to go on; engine, workers and where things lie are not part of it."""
        files = [{"name": file.name, "digest": file.digest} for file in self.files]
        settings = asdict(self.settings)
        return json.loads(
            json.dumps({"format": FORMAT, "model": self.model_digest, "input": files, "settings": settings})
        )


@dataclass(frozen=True)
class Record:
    """A finished block.

    Attributes:
        block: its name.
        rows: documents in its part.
        sha256: of its part.
        rejected: (where, reason) of its bad rows.
    """

    block: str
    rows: int
    sha256: str
    rejected: tuple[tuple[str, str], ...]

    @property
    def part(self) -> str:
        """File name of the block's predictions."""
        return f"part-{self.block}.parquet"


def model_digest(directory: Path) -> str:
    """Changes when the model's answers may: `config.json` holds the checksums of the weights.

    Raises:
        CheckpointError: no model is there.
    """
    digest = hashlib.sha256()
    for name in ("config.json", "thresholds.json"):
        try:
            digest.update(read_file(directory / name))
        except OSError as error:
            raise CheckpointError(f"{directory / name}: missing; give the `model` folder of a run") from error
    return digest.hexdigest()


def open_job(job: Job, *, overwrite: bool) -> list[Record]:
    """Make the output directory, or find in it what an earlier attempt at the same job has finished.

    Args:
        job: what is to be done.
        overwrite: throw away what another job has left there, or this one when it was finished. What an attempt that
            was killed has scored is kept.

    Another job that came to nothing, such as one whose labels the model did not know, is in nobody's way.

    Returns:
        The blocks that are done.

    Raises:
        DataError: the directory holds another job's output or other files.
    """
    try:
        return _open(job, overwrite=overwrite)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, pa.ArrowException) as error:
        raise DataError(
            f"{job.output}: what an earlier attempt left is damaged or cannot be written ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason'}); remove it, or give another --output"
        ) from error


def _open(job: Job, *, overwrite: bool) -> list[Record]:
    path = job.output / "_job.json"
    if job.output.exists() and not job.output.is_dir():
        raise DataError(f"{job.output}: is a file, not a directory: give another --output")
    if path.is_file():
        problem = _difference(read_json(path), job.identity())
        if problem and not overwrite and any(job.output.glob("part-*.parquet")):
            raise DataError(
                f"{job.output}: holds the output of another job ({problem} changed): give another --output, or "
                "--overwrite to replace it"
            )
        if problem or (overwrite and _is_finished(job.output)):
            _clear(job.output)
    elif job.output.is_dir() and any(job.output.iterdir()):
        raise DataError(f"{job.output}: has files in it, but no scoring job: give a new or an empty directory")
    if not path.is_file():
        _begin(job)
    _forget_what_is_replaced(job, overwrite)
    if (job.output / "_manifest.json").is_file():
        logger.info("%s: finished before; only what is damaged is scored again, with --overwrite all", job.output)
    return _finished(job.output)


def _is_finished(output: Path) -> bool:
    """With `.done` beside it, the manifest is an older one: of what is just being replaced."""
    return (output / "_manifest.json").is_file() and not (output / ".done").is_dir()


def _forget_what_is_replaced(job: Job, overwrite: bool) -> None:
    """Remove the manifest of an earlier output: where that is at a URI, it is copied here again after a kill."""
    path = job.output / "_manifest.json"
    if path.is_file() and (overwrite or _difference(read_json(path), job.identity())):
        path.unlink()


def _begin(job: Job) -> None:
    try:
        (job.output / ".done").mkdir(parents=True, exist_ok=True)
        write_text(job.output / "_job.json", json.dumps(job.identity(), indent=2) + "\n")
    except OSError as error:
        raise DataError(f"{job.output}: cannot be written: {error.strerror}; give another --output") from error


def publish(output: Path, block: str, table: pa.Table, rejected: Sequence[Rejected]) -> Record:
    """Write a block's part and its record, both whole or not at all.

    Raises:
        DataError: they cannot be written, as on a full disk.
    """
    target = output / f"part-{block}.parquet"
    try:
        # After a lost connection two workers may write the same block; each has a temporary file of its own.
        with replacing(target) as partial:
            pq.write_table(table, partial, compression="zstd")
            sha256 = file_sha256(partial)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror}; free space, then run it again") from error
    record = Record(block, table.num_rows, sha256, tuple((row.where, row.reason) for row in rejected))
    (output / ".done").mkdir(exist_ok=True)
    write_text(output / ".done" / f"{block}.json", json.dumps(asdict(record)))
    return record


def finish(job: Job, records: Iterable[Record]) -> dict[str, Any]:
    """Write _rejected.parquet and _manifest.json, and tidy up.

    Returns:
        The manifest.
    """
    records = sorted(records, key=lambda record: record.block)
    rejected = [(record.block, *row) for record in records for row in record.rejected]
    columns = {name: [row[i] for row in rejected] for i, name in enumerate(REJECTED.names)}
    with replacing(job.output / "_rejected.parquet") as partial:
        pq.write_table(pa.table(columns, schema=REJECTED), partial)
    parts = [{"path": r.part, "rows": r.rows, "sha256": r.sha256, "rejected": len(r.rejected)} for r in records]
    totals = {"documents": sum(record.rows for record in records), "rejected": len(rejected)}
    manifest = job.identity() | totals | {"parts": parts}
    write_text(job.output / "_manifest.json", json.dumps(manifest, indent=2) + "\n")
    shutil.rmtree(job.output / ".done", ignore_errors=True)
    for leftover in job.output.glob(".part-*.tmp"):
        leftover.unlink(missing_ok=True)
    return manifest


def _finished(output: Path) -> list[Record]:
    """Blocks whose part is as its record says; others are to be done again."""
    records = {record.block: record for record in _listed(output)}
    for path in (output / ".done").glob("*.json"):
        content = read_json(path)
        record = Record(**{**content, "rejected": tuple((where, reason) for where, reason in content["rejected"])})
        records[record.block] = record
    parts = ((record, output / record.part) for _, record in sorted(records.items()))
    return [record for record, part in parts if part.is_file() and file_sha256(part) == record.sha256]


def _listed(output: Path) -> list[Record]:
    """The records of a finished job, from its manifest; none where there is none."""
    if not (output / "_manifest.json").is_file():
        return []
    rejected: dict[str, list[tuple[str, str]]] = {}
    for row in pq.read_table(output / "_rejected.parquet").to_pylist():
        rejected.setdefault(row["block"], []).append((row["where"], row["reason"]))
    records = []
    for part in read_json(output / "_manifest.json")["parts"]:
        block = part["path"].removeprefix("part-").removesuffix(".parquet")
        records.append(Record(block, part["rows"], part["sha256"], tuple(rejected.get(block, ()))))
    return records


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What of a job's identity differs, in words, or None."""
    for part, name in (("format", "format"), ("model", "model"), ("input", "input")):
        if before.get(part) != now[part]:
            return name
    earlier = before.get("settings", {})
    changed = [key for key, value in now["settings"].items() if earlier.get(key) != value]
    return ", ".join(changed) or None


def _clear(output: Path) -> None:
    """Remove a job's files, `_job.json` last: a kill in between leaves a directory that --overwrite still clears."""
    for pattern in ("_manifest.json", "_rejected.parquet", "part-*.parquet", ".*.tmp"):
        for path in output.glob(pattern):
            path.unlink()
    shutil.rmtree(output / ".done", ignore_errors=True)
    (output / "_job.json").unlink()
