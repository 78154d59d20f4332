"""Run a scoring job: here by one process, with a thread that reads and tokenises ahead of the model."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from joblib import cpu_count

from xmtc.artefact.export import load_model
from xmtc.artefact.info import check_same
from xmtc.data.loader import prefetch
from xmtc.errors import DataError
from xmtc.predict.text_scorer import choose_device
from xmtc.score.batch import BlockScorer, TokenBlock
from xmtc.score.inputs import read_blocks
from xmtc.score.job import Job, Record, finish, open_job, publish
from xmtc.track.console import duration, print_line
from xmtc.track.progress import Progress

BLOCKS_AHEAD = 2
Records = Generator[Record, None, None]


def run_job(
    job: Job,
    score: Callable[[frozenset[str]], Records],
    *,
    max_rejected: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Score the unfinished blocks of a job, with a progress bar, and print a summary.

    Args:
        job: the job.
        score: scores and publishes the blocks that are not among the finished ones, which it gets.
        max_rejected: stop if there are more bad rows than this.
        overwrite: delete the output of another job, or of this job if it was complete.

    Returns:
        The manifest.

    Raises:
        DataError: too many bad rows, the input cannot be read, or the output belongs to another job.
    """
    started_s = time.monotonic()
    records = open_job(job, overwrite=overwrite)
    _check_rejected(records, max_rejected)
    done = frozenset(record.block for record in records)
    with (
        Progress().task("score", _rows_left(job, records)) as task,
        closing(score(done)) as scored,
    ):
        for record in scored:
            records.append(record)
            _check_rejected(records, max_rejected)
            task.advance(record.rows + len(record.rejected))
    _check_documents(records)
    manifest = finish(job, records)
    _print_summary(job, manifest, time.monotonic() - started_s)
    return manifest


def score_local(
    job: Job, *, device: str = "auto", workers: int | None = None, **limits: Any
) -> dict[str, Any]:
    """Run a job in this process.

    Args:
        job: the job.
        device: see `choose_device`.
        workers: number of threads that compute; None: one per core.
        limits: see `run_job`.

    Returns:
        The manifest.
    """
    return run_job(job, partial(_score, job, device, workers or cpu_count()), **limits)


def _score(job: Job, device: str, workers: int, done: frozenset[str]) -> Records:
    parts = load_model(job.model)
    check_same(job.model, job.model_digest)
    scorer = BlockScorer(parts, job.settings, choose_device(device), workers)
    for block in prefetch(_tokenised(job, scorer, done), BLOCKS_AHEAD):
        yield publish(job, block.name, scorer.score(block), block.rejected)


def _rows_left(job: Job, records: list[Record]) -> int | None:
    """Count the rows left to score; None if their number is unknown."""
    rows = 0
    for file in job.files:
        if file.rows is None:
            return None
        rows += file.rows
    finished = sum(record.rows + len(record.rejected) for record in records)
    return max(0, rows - finished)


def _check_rejected(records: list[Record], most: int | None) -> None:
    """Raise DataError if there are more bad rows than allowed; name the first."""
    bad_rows = [row for record in records for row in record.rejected]
    if most is not None and len(bad_rows) > most:
        where, reason = bad_rows[0]
        raise DataError(
            f"{len(bad_rows)} bad rows, more than --max-rejected {most}; the first is {where}: {reason}. Finished "
            "blocks are kept. Allow more bad rows, or correct the file, and run this job again"
        )


def _check_documents(records: list[Record]) -> None:
    """Raise DataError if no row is a document."""
    if any(record.rows for record in records):
        return
    bad_rows = [row for record in records for row in record.rejected]
    if not bad_rows:
        raise DataError("nothing to score: the input has no rows")
    where, reason = bad_rows[0]
    raise DataError(
        f"nothing to score: every row is bad; the first is {where}: {reason}"
    )


def _print_summary(job: Job, manifest: dict[str, Any], seconds: float) -> None:
    """Print one line on stderr: the numbers of documents and parts, the time, and the output."""
    documents = f"documents: {manifest['documents']:,}"
    if "released" in manifest:
        documents += f" (released: {manifest['released']:,})"
    facts = [documents, f"parts: {len(manifest['parts']):,}"]
    if manifest["rejected"]:
        facts.append(f"bad rows in _rejected.parquet: {manifest['rejected']:,}")
    facts.append(duration(seconds))
    print_line(f"{', '.join(facts)}: {job.output}")


def pending_files(job: Job, done: frozenset[str]) -> Iterator[int]:
    """Yield the indices of the files that may have unfinished blocks."""
    finished_blocks = Counter(name.partition("-")[0] for name in done)
    for index, file in enumerate(job.files):
        if file.rows is None or not file.counted:
            yield index
            continue
        blocks = -(-file.rows // job.settings.block_rows)
        if finished_blocks[f"{index:05d}"] < blocks:
            yield index


def _tokenised(
    job: Job, scorer: BlockScorer, done: frozenset[str]
) -> Iterator[partial[TokenBlock]]:
    for index in pending_files(job, done):
        file = job.files[index]
        for raw in read_blocks(
            index, file, job.settings.columns, job.settings.block_rows, done
        ):
            yield partial(scorer.tokenise, raw)
