"""Give `xmtc init` the files that strangers have, and compare what it reads with what was written.

    python tools/check/formats.py [--variants N] [--seed S] [--only NAME;…] [--record cases.jsonl]

With --record, each case adds a line to a file as it ends, and cases with a line are not run again.

The files are made from the public descriptions of formats (`format_cases/`), by functions that know nothing of xmtc's
readers. `xmtc init PATH` runs as a user types it. A case ends in one of these ways:

    right      the configuration that init wrote reads exactly the texts and labels that were written
    advised    init refused in one line; its advice, followed, gave the right texts and labels
    silent     other texts or labels, with exit status 0
    weak       a refusal whose advice does not lead to the right labels, or a message of several lines
    traceback  an exception that is no answer

The exit status is 1 if a case is silent, weak or a traceback.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import shlex
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from format_cases import exports, folders, more, tables
from format_cases.made import Case, Write, make_case
from readers import documents_of
from xmtc.config.load import load_config
from xmtc.run.config import RunConfig


@dataclass(frozen=True)
class Format:
    """A format: how it is written, and whether its labels can have blanks, or its documents several labels."""

    write: Write
    phrases: bool = True
    single: bool = False


FORMATS = {
    "Label Studio, JSON": Format(exports.label_studio),
    "Label Studio, JSON-MIN": Format(exports.label_studio_min),
    "Label Studio, CSV": Format(exports.label_studio_csv),
    "doccano, JSONL": Format(exports.doccano),
    "doccano, CSV": Format(exports.doccano_csv),
    "Prodigy, choices": Format(exports.prodigy_choices),
    "Argilla": Format(exports.argilla),
    "spaCy, cats": Format(exports.spacy_cats),
    "spaCy, pairs": Format(exports.spacy_pairs),
    "fastText": Format(exports.fasttext, phrases=False),
    "null and []": Format(exports.judged_empty_and_unjudged),
    "objects with names": Format(exports.objects_with_names),
    "objects, deeper": Format(exports.wrapped_objects),
    "separators": Format(tables.separators),
    "sep= in front": Format(tables.excel_first_line),
    'codes as ="001"': Format(tables.excel_codes, single=True, phrases=False),
    "Windows": Format(tables.windows),
    "TSV with quotes": Format(tables.texts_with_quotes),
    "Spark's backslashes": Format(tables.spark),
    "line breaks": Format(tables.line_breaks),
    "<a><b>": Format(tables.stack_exchange, phrases=False),
    "choices in cells": Format(tables.choices_in_cells),
    "lists in cells": Format(tables.lists_in_cells),
    "list of element": Format(tables.spark_lists),
    "dates past 9999": Format(tables.far_dates),
    "indicator columns": Format(tables.indicator_columns),
    "label1, label2": Format(tables.numbered_columns),
    ".jsonl.gz, .zst": Format(tables.compressed_lines),
    "JSON array": Format(tables.json_array),
    "paragraphs": Format(tables.paragraphs),
    "Annif, TSV": Format(folders.annif_tsv),
    "Annif, folder": Format(folders.annif_folder),
    "Spark's folder": Format(folders.spark_parts),
    "Kaggle's folder": Format(folders.kaggle),
    "XC repository": Format(folders.xc_folder),
    "saved dataset": Format(folders.saved_dataset),
    "svmlight": Format(folders.sparse_features),
    "Elasticsearch": Format(more.elasticsearch),
    "MongoDB": Format(more.mongodb),
    "objects in a row": Format(more.one_after_the_other),
    "list in an object": Format(more.list_in_one_object),
    "lists of others": Format(more.foreign_lists),
    "separator at the end": Format(more.separator_at_the_end),
    "SharePoint": Format(more.sharepoint),
    "wide signs": Format(more.wide_signs),
    "library of articles": Format(more.library),
    "yes, no, ticks": Format(more.signs),
    "a row for each label": Format(more.row_for_each_label),
    "without a header": Format(more.without_header),
    "state of annotation": Format(more.state_of_annotation),
    "numbers of classes": Format(more.class_numbers, single=True),
    "map in Parquet": Format(more.map_of_marks),
    "folder for each label": Format(more.label_folders, single=True),
    "split=train": Format(more.hive_partitions),
    "copied by a Mac": Format(more.copied_by_a_mac),
    "no ending": Format(more.no_ending),
}


@dataclass(frozen=True)
class Said:
    """What a command ended with: its exit status, its output, and the exception that nobody answered."""

    status: int
    output: str
    fault: str | None = None


@contextlib.contextmanager
def without_measuring() -> Iterator[None]:
    """Let `init` plan without measuring this machine, which takes seconds for each file."""

    def fixed_seconds(
        _: object, ids_N: object, lengths: object, **rest: object
    ) -> dict[object, float]:
        del ids_N, rest
        return dict.fromkeys(lengths, 0.02)  # type: ignore[call-overload]

    with (
        mock.patch("xmtc.init.plan.core_seconds", return_value=0.2),
        mock.patch("xmtc.init.plan.encoder_seconds", fixed_seconds),
    ):
        yield


def run_xmtc(folder: Path, arguments: Sequence[str]) -> Said:
    """Run a command of `xmtc` in this process and this folder, as the command line would."""
    from xmtc.cli import main

    captured = io.StringIO()
    old_folder = Path.cwd()
    os.chdir(folder)
    try:
        with (
            without_measuring(),
            mock.patch.object(sys, "argv", ["xmtc", *arguments]),
            contextlib.redirect_stdout(captured),
            contextlib.redirect_stderr(captured),
        ):
            main()
        return Said(0, captured.getvalue())
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Said(status, captured.getvalue())
    except Exception:
        return Said(1, captured.getvalue(), traceback.format_exc())
    finally:
        os.chdir(old_folder)


def labels_by_text(config_file: Path, scratch: Path) -> dict[str, frozenset[str]]:
    """Read what a configuration names as `prepare` would, and return the labels of each text."""
    old_folder = Path.cwd()
    os.chdir(config_file.parent)
    try:
        config = load_config(RunConfig, config_file).data
        spool, chosen = documents_of(config, scratch)
    finally:
        os.chdir(old_folder)
    read: dict[str, frozenset[str]] = {}
    matrix = chosen.label_matrix
    for part in chosen.rows.values():
        for text, row in zip(spool.texts(part), part, strict=True):
            ids = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
            read[text] = frozenset(
                chosen.labels.labels[int(label_id)] for label_id in np.sort(ids)
            )
    return read


def difference(case: Case, read: dict[str, frozenset[str]]) -> str | None:
    """Say how what was read differs from what was written; None if it does not."""
    expected = {
        " ".join(text.split()): labels for text, labels in case.expected.items()
    }
    optional = {" ".join(text.split()) for text in case.optional}
    actual = {" ".join(text.split()): labels for text, labels in read.items()}
    for text, labels in expected.items():
        if text not in actual:
            return f"{len(expected)} documents written, {len(actual)} read; missing: {text[:60]!r}"
        if actual[text] != labels:
            return (
                f"{text[:40]!r} has {sorted(actual[text])} instead of {sorted(labels)}"
            )
    additional = set(actual) - set(expected) - optional
    if additional:
        return f"{len(additional)} documents too many, such as {min(additional)[:60]!r}"
    return None


OPTION = re.compile(
    r"--(?:text|labels|label-separator|accept|id|split-column|task|name)\b"
    r"(?:([ =])(?:'[^']*'|\"[^\"]*\"|[\w.=-]+))?"
)
OVERRIDE = re.compile(r"data\.source\.\w+=(?:'[^']*'|[\w-]+)")


def advice(output: str) -> list[list[str]]:
    """The options and settings that a refusal says to add, alone and together."""
    settings = [shlex.split(setting) for setting in OVERRIDE.findall(output)]
    options = [
        shlex.split(
            option.group().replace("=", " ", 1) if option[1] == "=" else option.group()
        )
        for option in OPTION.finditer(output)
    ]
    complete = [option for option in options if len(option) == 2] + settings
    first_by_name: dict[str, list[str]] = {}
    for option in complete:
        first_by_name.setdefault(option[0], option)
    together = [word for option in first_by_name.values() for word in option]
    return [together, *complete] if complete else []


def outcome(case: Case, path: Path, scratch: Path) -> tuple[str, str]:
    """Run a case: how it ended, and what was said."""
    folder = scratch / "work"
    folder.mkdir()
    said = run_xmtc(folder, ["init", str(path)])
    if said.fault is not None or "Traceback" in said.output:
        return "traceback", said.fault or said.output
    if said.status != 0:
        return _after_refusal(case, path, scratch, said)
    return _compare(case, folder, scratch / "spool", "right")


def _after_refusal(
    case: Case, path: Path, scratch: Path, said: Said
) -> tuple[str, str]:
    """Follow the advice of a refusal."""
    if len([line for line in said.output.splitlines() if line.strip()]) > 12:
        return "weak", said.output
    for number, options in enumerate(advice(said.output)):
        folder = scratch / f"followed{number}"
        folder.mkdir()
        again = run_xmtc(folder, ["init", str(path), *options])
        if again.fault is not None:
            return "traceback", again.fault
        if again.status == 0:
            end, difference_found = _compare(
                case, folder, scratch / f"spool{number}", "advised"
            )
            if end == "advised":
                return end, said.output
            return "weak", f"{said.output}\nfollowed by {options}: {difference_found}"
    return "weak", said.output


def _compare(case: Case, folder: Path, spool: Path, good: str) -> tuple[str, str]:
    try:
        (config_file,) = folder.glob("*.yaml")
        read = labels_by_text(config_file, spool)
    except Exception:
        return "traceback", traceback.format_exc()
    wrong = difference(case, read)
    return (good, "") if wrong is None else ("silent", wrong)


def run(
    variants: int, seed: int, names: list[str], record: Path | None = None
) -> dict[str, list[tuple[str, str]]]:
    """Run this many variants of each format, of all formats in turn."""
    results: dict[str, list[tuple[str, str]]] = defaultdict(list)
    recorded = _recorded(record)
    for variant in range(variants):
        for name in names:
            key = (seed, name, variant)
            if key in recorded:
                results[name].append(recorded[key])
                continue
            draw = random.Random(f"{seed} {name} {variant}")
            made_by = FORMATS[name]
            case = make_case(draw, phrases=made_by.phrases, single=made_by.single)
            with tempfile.TemporaryDirectory() as folder:
                files = Path(folder) / "files"
                files.mkdir()
                path = made_by.write(case, files)
                results[name].append(outcome(case, path, Path(folder)))
            if record is not None:
                line = [*key, *results[name][-1]]
                with record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return results


def _recorded(record: Path | None) -> dict[tuple[int, str, int], tuple[str, str]]:
    """Return the outcomes of a record by seed, format and variant."""
    if record is None or not record.exists():
        return {}
    lines = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    return {
        (seed, name, variant): (end, said) for seed, name, variant, end, said in lines
    }


ENDS = ("right", "advised", "silent", "weak", "traceback")


def table_of(results: dict[str, list[tuple[str, str]]]) -> str:
    """Counts by format, as Markdown."""
    lines = [f"| format | tried | {' | '.join(ENDS)} |", "|---" * (len(ENDS) + 2) + "|"]
    for name, cases in results.items():
        ends = Counter(end for end, _ in cases)
        lines.append(
            f"| {name} | {len(cases)} | {' | '.join(str(ends[end]) for end in ENDS)} |"
        )
    everything = Counter(end for cases in results.values() for end, _ in cases)
    lines.append(
        f"| all | {everything.total()} | {' | '.join(str(everything[end]) for end in ENDS)} |"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", default="", help="names of formats, separated by semicolons"
    )
    parser.add_argument("--record", type=Path, help="JSON lines of every outcome")
    options = parser.parse_args()
    names = [name.strip() for name in options.only.split(";") if name.strip()] or list(
        FORMATS
    )
    results = run(options.variants, options.seed, names, options.record)
    print(table_of(results))
    bad = 0
    for name, cases in results.items():
        shown = 0
        for end, message in cases:
            if end in ("silent", "weak", "traceback"):
                bad += 1
                shown += 1
                if shown <= 2:
                    print(f"\n{name}: {end}: {message[-1500:]}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
