"""What `xmtc predict` prints, and the job that `xmtc score` describes."""

import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from xmtc.data.readers import ReaderConfig, Rejected
from xmtc.data.readers.columns import DocumentColumns
from xmtc.data.readers.files import json_object, open_text
from xmtc.data.readers.table_config import table_of
from xmtc.errors import CheckpointError, ConfigError, DataError
from xmtc.models.info import describe
from xmtc.models.onnx_export import export_onnx, is_onnx
from xmtc.score.filters import Threshold
from xmtc.score.inputs import TextColumns, find_files, read_rows, with_known_id
from xmtc.score.job import Job, Settings, model_digest
from xmtc.score.local import score_local
from xmtc.score.place import place_of
from xmtc.score.predictor import Model, Prediction, choose_device
from xmtc.track.console import duration, print_line, printable
from xmtc.track.progress import Progress

_LEAST, _MOST = 5, 100
"""Labels of a text that `xmtc predict` prints by itself: the best in any case, and the most if more are predicted."""


def predict_texts(
    path: Path,
    texts: Sequence[str],
    read: Sequence[tuple[Mapping[str, str | int], str]] = (),
    *,
    top_k: int | None = None,
    evidence: bool = False,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
) -> None:
    """Print one JSON line a text: its place, and its labels with probability and whether it is predicted.

    Args:
        path: of the model.
        texts: the first texts.
        read: place and text of those that follow; see `read_documents`.
        top_k: labels of each text. None: those that are predicted, and the best ones besides; of a single-label model
            the one that it predicts.
        evidence: also the words that speak for each label.
        include: see `Model.predict`.
        exclude: likewise.

    Raises:
        DataError: a text has no token, or the model knows no such label.
    """
    model = Model.from_pretrained(path)
    for place, text in read:
        if not model.tokenizer.encode(text, add_special_tokens=False):
            raise DataError(f"--input: {' '.join(map(str, *place.items()))} has no token: leave it out")
    least = 1 if model.limits_L is None else _LEAST
    found = model.predict(
        [*texts, *(text for _, text in read)],
        top_k=top_k or _MOST,
        threshold=None if top_k else "tuned",
        least=least,
        evidence=evidence,
        include=include,
        exclude=exclude,
    )
    places = [*({} for _ in texts), *(place for place, _ in read)]
    for number, (place, predictions) in enumerate(zip(places, found, strict=True)):
        rows = [_row(prediction, evidence=evidence) for prediction in predictions]
        print(printable(json.dumps({"text": number, **place, "labels": rows}, ensure_ascii=False)))


def _row(prediction: Prediction, *, evidence: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "label": prediction.label,
        "score": round(prediction.score, 4),
        "predicted": prediction.predicted,
    }
    if prediction.name and prediction.name != prediction.label:
        row["name"] = prediction.name
    if evidence:
        row["evidence"] = [[part.text, round(part.contribution, 3)] for part in prediction.evidence]
    return row


def read_documents(
    path: Path, columns: TextColumns, trained_on: DocumentColumns | None
) -> list[tuple[dict[str, str | int], str]]:
    """Place and text of each document: rows of JSON lines, CSV or Parquet by the ending, else the lines of a text.

    Args:
        path: file or folder; `-` is standard input, which is text.
        columns: where text and id are in a table.
        trained_on: see `with_known_id`.

    Raises:
        DataError: it cannot be read, a row is no document, or a text file holds JSON or a configuration.
    """
    if str(path) == "-" or not (path.is_dir() or table_of(path)):
        lines = read_lines(path)
        number, first = next(iter(lines.items()))
        if path.suffix in (".yaml", ".yml"):
            raise DataError(f"--input {path}: a configuration, not texts; xmtc score reads its source")
        if _is_object(first):
            raise DataError(f"--input {path}: line {number} is a JSON object; give a file whose name ends in .jsonl")
        return [({"line": number}, line) for number, line in lines.items()]
    files = find_files([str(path)])
    columns = with_known_id(columns, trained_on, files)
    found: list[tuple[dict[str, str | int], str]] = []
    for row in chain.from_iterable(read_rows(file, columns) for file in files):
        if isinstance(row, Rejected):
            raise DataError(f"{row.where}: {row.reason}")
        found.append(({"id": row.doc_id}, row.text))
    if not found:
        raise DataError(f"--input {path}: holds no row")
    return found


def _is_object(line: str) -> bool:
    try:
        json_object(line)
    except ValueError:
        return False
    return True


def read_lines(path: Path) -> dict[int, str]:
    """Line number, from 1 → text of the lines of a file that are not blank; of standard input for the path `-`.

    Raises:
        DataError: it cannot be read as UTF-8, or has no text.
    """
    if str(path) == "-":
        try:
            lines = io.StringIO(sys.stdin.buffer.read().decode("utf-8-sig"), newline=None).read().split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"--input -: not UTF-8 text ({error.reason} at byte {error.start}); convert it") from None
    else:
        with open_text(path) as text:
            lines = [line.rstrip("\r\n") for line in text]
    found = {number: line for number, line in enumerate(lines, start=1) if line.strip()}
    if not found:
        raise DataError(f"--input {path}: only blank lines; give one text a line")
    return found


def export_graph(model: Path, output: Path, *, int8: bool) -> None:
    """Write the ONNX form of a model and say how far its logits are from PyTorch's; see `export_onnx`."""
    difference = export_onnx(model, output, int8=int8)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print_line(f"{output}: {size / 1e6:.1f} MB; logits of random documents within {difference:.1e} of PyTorch's")


def require_onnx(model: Path, settings: Settings) -> None:
    """Refuse what is not the ONNX form of a model, and what that cannot do, before there is any output.

    Raises:
        CheckpointError: it is not.
        ConfigError: it cannot.
    """
    if not is_onnx(model):
        raise CheckpointError(f"{model}: no ONNX model there; write one with `xmtc export {model} --onnx OUT`")
    wanted = {"--shortlist": settings.shortlist, "--evidence": settings.evidence}
    if unfit := [option for option, value in wanted.items() if value]:
        raise ConfigError(
            f"--engine onnx and {unfit[0]} exclude each other: an ONNX model gives the logits of all its "
            "labels and nothing else; score with the model it was made from"
        )


def make_job(
    model: Path,
    inputs: Sequence[str],
    output: str | Path,
    settings: Settings,
    sources: Mapping[str, ReaderConfig] | None = None,
    source: str | None = None,
) -> Job:
    """Find the input (see `find_files`) and its identifiers, and take the fingerprints of it and the model.

    Args:
        model: the model on this machine.
        inputs: paths and URIs.
        output: path or URI.
        settings: how to score.
        sources: see `find_files`.
        source: the model as the user named it: URI, owner/name or path.

    Raises:
        DataError: no input there, or of an unknown kind.
        CheckpointError: no model there.
    """
    model, place = model.absolute(), place_of(output)
    digest, files = model_digest(model), tuple(find_files(inputs, sources))
    columns = with_known_id(settings.columns, describe(model).columns, files)
    known = source if source is not None and not Path(source).exists() else str(model)
    return Job(model, digest, known, place, files, replace(settings, columns=columns))


def make_settings(
    *,
    top_k: int,
    threshold: str | None,
    min_score: float,
    evidence: bool,
    columns: TextColumns,
    block_rows: int,
    bfloat16: bool,
) -> Settings:
    """The options of `xmtc score` as settings.

    Raises:
        ConfigError: an option's value is none of those it can have.
    """
    return Settings(
        top_k=top_k,
        threshold=parse_threshold(threshold),
        min_score=min_score,
        evidence=evidence,
        bfloat16=bfloat16,
        block_rows=block_rows,
        columns=columns,
    )


def run_locally(
    job: Job, *, device: str, workers: int | None, max_rejected: int | None, overwrite: bool
) -> dict[str, Any]:
    """Run the job in this process, with progress, and say how it went; see `score_local`."""
    started_s = time.monotonic()
    with Progress() as progress:
        manifest = score_local(
            job, progress, device=device, workers=workers, max_rejected=max_rejected, overwrite=overwrite
        )
    print_summary(job, manifest, time.monotonic() - started_s)
    return manifest


def print_summary(job: Job, manifest: dict[str, Any], seconds: float) -> None:
    """One line on stderr: what there is now, and where."""
    bad = f", {manifest['rejected']:,} bad rows in _rejected.parquet" if manifest["rejected"] else ""
    print_line(
        f"{manifest['documents']:,} documents in {len(manifest['parts'])} parts{bad}, {duration(seconds)}: {job.output}"
    )


def parse_threshold(value: str | None) -> Threshold:
    """`tuned`, or a probability.

    Raises:
        ConfigError: neither.
    """
    if value is None or value == "tuned":
        return value
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(f"--threshold {value}: give `tuned` or a probability from 0 to 1")
    return number


def read_labels(entries: Sequence[str] | None) -> tuple[str, ...] | None:
    """The labels and branches that `--include` or `--exclude` name, each once; None without the option.

    Args:
        entries: labels, branches, and `@FILE` for a file with one of these on each line.

    Raises:
        DataError: a file cannot be read, or holds no label.
    """
    if not entries:
        return None
    labels: dict[str, None] = {}
    for entry in entries:
        labels |= dict.fromkeys(_lines_of(Path(entry[1:])) if entry.startswith("@") else [entry])
    return tuple(labels)


def _lines_of(path: Path) -> list[str]:
    with open_text(path) as lines:
        labels = [line.strip() for line in lines if line.strip()]
    if not labels:
        raise DataError(f"{path}: holds no label; write one on each line")
    return labels


def use_bfloat16(precision: str, device: str) -> bool:
    """Whether to compute under bfloat16 autocast.

    Args:
        precision: `bf16`, `fp32`, or `auto`: bfloat16 on GPUs and on CPUs with instructions for its products.
        device: see `choose_device`.

    Raises:
        ConfigError: another word.
    """
    if precision not in ("auto", "bf16", "fp32"):
        raise ConfigError(f"--precision {precision}: give auto, bf16 or fp32")
    if precision == "auto":
        capabilities = torch.cpu.get_capabilities()
        # A GPU that is asked for may be another machine's: who computes on it says whether it is there.
        return (
            device.startswith("cuda")
            or choose_device(device).type == "cuda"
            or any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16"))
        )
    return precision == "bf16"
