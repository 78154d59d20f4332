"""The implementation of `xmtc predict`, and the job of `xmtc score`."""

import io
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from xmtc.artefact.info import model_digest, read_description, vocabulary_warning
from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.data.readers.columns import DocumentColumns
from xmtc.data.readers.files import bounded_lines, json_object, open_text
from xmtc.data.readers.table_config import label_source, table_of
from xmtc.data.windows import first_tokens
from xmtc.distributed.config import native_bfloat16
from xmtc.distributed.strategies.settings import Precision
from xmtc.errors import DataError
from xmtc.files import is_yaml, replacing_file, writing
from xmtc.predict.arguments import as_threshold
from xmtc.predict.filters import Threshold
from xmtc.predict.predictions import FLAT, PredictedTexts, Prediction, csv_text
from xmtc.predict.predictor import Model
from xmtc.predict.text_scorer import choose_device
from xmtc.score.destination import destination_of
from xmtc.score.inputs import (
    Source,
    TextColumns,
    check_readable,
    input_files,
    read_inputs,
    texts_of,
    with_known_id,
)
from xmtc.score.job import Job, Settings, check_destination
from xmtc.track.console import printable
from xmtc.track.progress import ConsoleTask, Progress

logger = logging.getLogger(__name__)

_STANDARD_OUTPUT = Path("-")
_LEAST = 5
"""Default of `xmtc predict`: minimum number of labels per text."""
_AT_ONCE = 2048
"""Texts that `xmtc predict` holds in memory."""
Placed = tuple[Mapping[str, str | int], str]
"""Where a text of a file stands, and the text."""
_Labelled = tuple[Sequence[Mapping[str, str | int]], PredictedTexts]
"""Places of texts, and what was predicted for them."""


def predict_texts(
    path: Path,
    texts: Sequence[str],
    read: Iterable[Placed] = (),
    *,
    top_k: int | None = None,
    evidence: bool = False,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    language: str | None = None,
    table: Path | None = None,
    longest_document: int = LONGEST_DOCUMENT,
) -> None:
    """Print one JSON line per text: its place, and its labels with probability and whether each is predicted, and
    what to expect of the predicted ones.

    Texts are read, labelled and printed some thousands at a time, so that a file may have any number of them.

    Args:
        path: path of the model.
        texts: the first texts.
        read: place and text of further documents; see `texts_to_predict`.
        top_k: number of labels per text. None: all predicted labels and the best others; for a single-label model, only
            the predicted label.
        evidence: also print what supports each label.
        include: the only labels to predict, see `Model.predict`.
        exclude: labels not to predict.
        language: language of the names, see `Model.predict`.
        table: CSV file to write instead, with a row for each label of each text; `-` is standard output.
        longest_document: most characters of a text.

    Raises:
        StorageError: the file cannot be written.
        DataError: a text has no tokens, or the model has no such label or language.
    """
    documents: Iterator[Placed] = chain((({}, text) for text in texts), read)
    blocks = iter(lambda: list(islice(documents, _AT_ONCE)), [])
    first = next(
        blocks, []
    )  # what cannot be read is refused before the model is loaded
    model = Model.from_pretrained(path)
    model.scorer.longest_document = longest_document
    least = min(model.scorer.default_top_k(), _LEAST)

    def predicted(block: Sequence[Placed]) -> _Labelled:
        for place, text in block:
            tokenizer = model.scorer.tokenizer.backend_tokenizer
            if place and not first_tokens(tokenizer, [text], 1)[0].ids:
                raise DataError(
                    f"--input: {' '.join(map(str, *place.items()))} has no tokens: leave it out"
                )
        found = model.predict(
            [text for _, text in block],
            top_k=top_k,
            threshold=None if top_k else "tuned",
            least=least,
            evidence=evidence,
            include=include,
            exclude=exclude,
            language=language,
        )
        return [place for place, _ in block], found

    labelled = map(predicted, chain([first], blocks))
    if table is None:
        _print_lines(labelled, evidence=evidence)
    elif table == _STANDARD_OUTPUT:
        for number, rows in enumerate(_tables(labelled)):
            print(printable(csv_text(rows, header=number == 0)), end="")
    else:
        _write_csv(table, labelled)
        print(printable(f"written: {table}"))


def _print_lines(labelled: Iterable[_Labelled], *, evidence: bool) -> None:
    number = 0
    for places, found in labelled:
        for place, predictions in zip(places, found, strict=True):
            rows = [_row(prediction, evidence=evidence) for prediction in predictions]
            expected = {
                name: None if value is None else round(value, 4)
                for name, value in predictions.expected._asdict().items()
            }
            line = {"text": number, **place, "labels": rows, "expected": expected}
            print(printable(json.dumps(line, ensure_ascii=False)))
            number += 1


def _tables(labelled: Iterable[_Labelled]) -> Iterator[pa.Table]:
    """Yield tables with a row for each label of each text; a text has the identifier of its place, or its number."""
    number = 0
    for places, found in labelled:
        doc_ids = [
            str(*place.values()) or str(number + row)
            for row, place in enumerate(places)
        ]
        yield found.to_table(doc_ids)
        number += len(places)


def _write_csv(path: Path, labelled: Iterable[_Labelled]) -> None:
    with (
        writing(path),
        replacing_file(path) as partial,
        csv.CSVWriter(partial, FLAT) as writer,
        Progress().task("predict") as task,
    ):
        for table in _tables(_counted(labelled, task)):
            writer.write_table(table)


def _counted(labelled: Iterable[_Labelled], task: ConsoleTask) -> Iterator[_Labelled]:
    for places, found in labelled:
        yield places, found
        task.advance(len(places))


def _row(prediction: Prediction, *, evidence: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "label": prediction.label,
        "score": round(prediction.score, 4),
        "predicted": prediction.predicted,
    }
    if prediction.name and prediction.name != prediction.label:
        row["name"] = prediction.name
    if evidence:
        row["evidence"] = [
            [part.text, round(part.contribution, 3), part.kind]
            for part in prediction.evidence
        ]
    return row


def texts_to_predict(
    path: Path, columns: TextColumns, trained_on: DocumentColumns | None
) -> Iterator[Placed]:
    """Yield place and text of each document: rows of JSON lines, CSV or Parquet files, otherwise lines of a text file.

    Args:
        path: file or folder; `-` is standard input, which is read as text.
        columns: columns of text and id in a table.
        trained_on: see `with_known_id`.

    Raises:
        DataError: it cannot be read, a row is not a document, or a text file holds JSON or a configuration.
    """
    if not is_table(path):
        yield from _lines_to_predict(path, columns.longest_document)
        return
    is_empty = True
    for doc_id, text in texts_of(read_inputs([str(path)], columns, trained_on)):
        is_empty = False
        yield {"id": doc_id}, text
    if is_empty:
        raise DataError(f"--input {path}: has no rows")


def _lines_to_predict(path: Path, longest: int) -> Iterator[Placed]:
    lines = read_lines(path, longest)
    number, first = next(lines)
    if is_yaml(path):
        raise DataError(
            f"--input {path}: a configuration, not texts; use xmtc score, which reads its source"
        )
    with suppress(ValueError):
        json_object(first)
        raise DataError(
            f"--input {path}: line {number} is a JSON object; give a file whose name ends in .jsonl"
        )
    for place, line in chain([(number, first)], lines):
        yield {"line": place}, line


def is_table(path: Path) -> bool:
    """Whether `texts_to_predict` reads rows of tables there, not lines."""
    return path.is_dir() or table_of(path) is not None


def read_lines(
    path: Path, longest: int = LONGEST_DOCUMENT
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, or of standard input for the path `-`, with numbers from 1, without blank lines.

    Args:
        path: the file.
        longest: most characters of a line.

    Raises:
        DataError: the file cannot be read as UTF-8, has no text, or a line is too long.
    """
    only_blank = True
    with _text_of(path) as text:
        ends = len("\r\n")
        for number, line in enumerate(bounded_lines(text, longest + ends), start=1):
            content = None if line is None else line.rstrip("\r\n")
            if content is None or len(content) > longest:
                raise DataError(
                    f"{path}: line {number} has more than {longest:,} characters: give one text a line, and divide a "
                    "longer one, or raise --longest-document"
                )
            if content.strip():
                only_blank = False
                yield number, content
    if only_blank:
        raise DataError(f"{path}: only blank lines; give one text or label per line")


@contextmanager
def _text_of(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a file, or standard input for the path `-`.

    Raises:
        DataError: it cannot be read as UTF-8.
    """
    if str(path) != "-":
        with open_text(path) as text:
            yield text
        return
    text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig")
    try:
        yield text
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text ({error.reason}); convert it"
        ) from None
    finally:
        text.detach()  # it would close standard input


def make_job(
    model: Path,
    inputs: Sequence[str],
    output: str | Path,
    settings: Settings,
    sources: Mapping[str, Source] | None = None,
    source: str | None = None,
) -> Job:
    """Describe a job: find the input files (see `input_files`) and identifiers, and fingerprint input and model.

    Args:
        model: path of the model on this machine.
        inputs: paths and URIs.
        output: path or URI.
        settings: see `Settings`.
        sources: see `input_files`.
        source: the model as the user gave it: URI, owner/name or path.

    Raises:
        DataError: there is no input, or its file type is unknown; or see `check_destination`.
        CheckpointError: there is no model.
    """
    model, place = model.absolute(), destination_of(output)
    check_destination(place)  # hashing the input may take an hour
    digest, files = model_digest(model), tuple(input_files(inputs, sources))
    info = read_description(model)
    columns = with_known_id(settings.columns, info.columns, files)
    check_readable(files, columns)
    for given, one in (sources or {}).items():
        labels = label_source(one.settings) if info.vocabulary else None
        if labels is not None and (
            warning := vocabulary_warning(info.vocabulary, labels.read().version, given)
        ):
            logger.warning("%s", warning)
    known = source if source is not None and not Path(source).exists() else str(model)
    return Job(model, digest, known, place, files, replace(settings, columns=columns))


def parse_threshold(value: str | None) -> Threshold:
    """Parse a threshold: `tuned`, a rule, or a probability.

    Raises:
        ConfigError: it is neither.
    """
    if value is None:
        return None
    try:
        return as_threshold(float(value))
    except ValueError:
        return as_threshold(value)


def read_labels(entries: Sequence[str] | None) -> tuple[str, ...] | None:
    """Read the labels and branches of `--include` or `--exclude`, without duplicates; None without the option.

    Args:
        entries: labels, branches, and `@FILE` for a file with one of these per line.

    Raises:
        DataError: a file cannot be read, or has no labels.
    """
    if not entries:
        return None
    labels: dict[str, None] = {}
    for entry in entries:
        lines = (
            (line.strip() for _, line in read_lines(Path(entry[1:])))
            if entry.startswith("@")
            else [entry]
        )
        labels |= dict.fromkeys(lines)
    return tuple(labels)


def use_bfloat16(precision: Precision, device: str) -> bool:
    """Whether to compute under bfloat16 autocast.

    Args:
        precision: `bf16`, `fp32`, or `auto`: bfloat16 on GPUs and on CPUs with instructions for its products.
        device: see `choose_device`.
    """
    if precision != "auto":
        return precision == "bf16"
    # The GPU may belong to another machine, so only the process that computes on it checks that it exists.
    return (
        device.startswith("cuda")
        or choose_device(device).type == "cuda"
        or native_bfloat16(gpu=False)
    )
