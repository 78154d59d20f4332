"""The local engine of `xmtc score`: one process, and a thread that reads and tokenises ahead of the model."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from joblib import cpu_count

from xmtc.artefact.export import load_model
from xmtc.data.loader import prefetch
from xmtc.errors import CheckpointError, DataError
from xmtc.predict.predictor import choose_device
from xmtc.score.batch import BlockScorer, TokenBlock
from xmtc.score.inputs import read_blocks
from xmtc.score.job import Job, Record, finish, model_digest, open_job, publish
from xmtc.track.progress import Progress

BLOCKS_AHEAD = 2


def score_local(
    job: Job,
    progress: Progress,
    *,
    device: str = "auto",
    workers: int | None = None,
    max_rejected: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Score the unfinished blocks of a job.

    Args:
        job: the job.
        progress: progress bar, which counts documents.
        device: see `choose_device`.
        workers: number of threads that compute; None: one per core.
        max_rejected: stop if there are more bad rows than this.
        overwrite: delete the output of another job, or of this job if it was complete.

    Returns:
        The manifest.

    Raises:
        DataError: too many bad rows, the input cannot be read, or the output belongs to another job.
    """
    records = open_job(job, overwrite=overwrite)
    check_rejected(records, max_rejected)
    done = frozenset(record.block for record in records)
    parts = load_model(job.model)
    if model_digest(job.model) != job.model_digest:
        raise CheckpointError(f"{job.model}: replaced since this job began; run the command again")
    scorer = BlockScorer(parts, job.settings, choose_device(device), workers or cpu_count())
    with progress.task("score", rows_left(job, records)) as task:
        for block in prefetch(_tokenised(job, scorer, done), BLOCKS_AHEAD):
            records.append(publish(job.output, block.name, scorer.score(block), block.rejected))
            check_rejected(records, max_rejected)
            task.advance(len(block.doc_ids) + len(block.rejected))
    check_documents(records)
    return finish(job, records)


def rows_left(job: Job, records: list[Record]) -> int | None:
    """Count the rows left to score; None if their number is unknown."""
    known = [file.rows for file in job.files]
    if any(rows is None for rows in known):
        return None
    return max(0, sum(rows or 0 for rows in known) - sum(record.rows + len(record.rejected) for record in records))


def check_rejected(records: list[Record], most: int | None) -> None:
    """Raise DataError if there are more bad rows than allowed; name the first."""
    if most is not None and (bad := sum(len(record.rejected) for record in records)) > most:
        where, reason = next(row for record in records for row in record.rejected)
        raise DataError(
            f"{bad} bad rows, more than --max-rejected {most}; the first is {where}: {reason}. Finished "
            "blocks are kept. Allow more bad rows and run this job again, or fix the input (which makes another job)"
        )


def check_documents(records: list[Record]) -> None:
    """Raise DataError if no row is a document."""
    if not any(record.rows for record in records):
        first = next((row for record in records for row in record.rejected), None)
        reason = f"every row is bad; the first is {first[0]}: {first[1]}" if first else "the input has no rows"
        raise DataError(f"nothing to score: {reason}")


def pending_files(job: Job, done: frozenset[str]) -> Iterator[int]:
    """Yield the indices of the files that may have unfinished blocks."""
    blocks = Counter(name.partition("-")[0] for name in done)
    for index, file in enumerate(job.files):
        if file.rows is None or not file.counted or blocks[f"{index:05d}"] < -(-file.rows // job.settings.block_rows):
            yield index


def _tokenised(job: Job, scorer: BlockScorer, done: frozenset[str]) -> Iterator[partial[TokenBlock]]:
    for index in pending_files(job, done):
        file = job.files[index]
        for raw in read_blocks(index, file, job.settings.columns, job.settings.block_rows, done):
            yield partial(scorer.tokenise, raw)
