"""MIMIC-IV and MIMIC-III from PhysioNet's files, unchanged: one document per admission, its ICD codes as labels.

Notes are streamed, twice: once for which notes belong to which admission, once for their text. Only the codes and the
admissions' numbers are held in memory, and the texts of an admission with several notes until the last.

Suffixes: G patients, L codes.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import sparse
from typing_extensions import override

from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import (
    LONGEST_DOCUMENT,
    SPLITS,
    Document,
    LabelInfo,
    Reader,
    Rejected,
    quoted_cell,
    shown_columns,
    sound,
)
from xmtc.data.readers.columns import SPLIT_NAMES
from xmtc.data.readers.csv_table import CsvTable
from xmtc.data.readers.files import content_hash
from xmtc.data.readers.formats import format_of
from xmtc.data.readers.mimic_tables import (
    CodeKind,
    Codes,
    Layout,
    Notes,
    names_of_codes,
)
from xmtc.data.readers.stream_csv import Column
from xmtc.data.stratify import stratify_groups
from xmtc.errors import DataError
from xmtc.files import reading
from xmtc.track.progress import Progress

if TYPE_CHECKING:
    from xmtc.data.readers.config import MimicConfig, SplitConfig

logger = logging.getLogger(__name__)

_LAYOUTS = {
    "iv": Layout(
        "note/discharge.csv",
        codes={
            "diagnosis": "hosp/diagnoses_icd.csv",
            "procedure": "hosp/procedures_icd.csv",
        },
        names={
            "diagnosis": "hosp/d_icd_diagnoses.csv",
            "procedure": "hosp/d_icd_procedures.csv",
        },
        code="icd_code",
        version="icd_version",
        order=("note_seq", "charttime"),
        note_kind="note_type",
    ),
    "iii": Layout(
        "NOTEEVENTS.csv",
        codes={"diagnosis": "DIAGNOSES_ICD.csv", "procedure": "PROCEDURES_ICD.csv"},
        names={"diagnosis": "D_ICD_DIAGNOSES.csv", "procedure": "D_ICD_PROCEDURES.csv"},
        code="icd9_code",
        version=None,
        order=("chartdate", "charttime", "row_id"),
        note_kind="description",
        only=(("category", "Discharge summary"), ("iserror", "")),
    ),
}


class MimicReader(Reader):
    """Reads the discharge notes of admissions, each with its codes and a split by patients.

    Args:
        settings: release, folders, and which codes.
    """

    def __init__(self, settings: "MimicConfig") -> None:
        self._settings = settings
        self._root = Path(settings.directory)
        self._layout = _LAYOUTS[settings.release]
        self._kinds: tuple[CodeKind, ...] = (
            ("diagnosis", "procedure") if settings.procedures else ("diagnosis",)
        )

    @override
    def fingerprint(self) -> str:
        paths = ("directory", "notes", "split_file")  # moving files changes nothing
        settings = {
            key: value
            for key, value in asdict(self._settings).items()
            if key not in paths
        }
        return (
            f"mimic:{json.dumps(settings, sort_keys=True)}:{content_hash(self.files())}"
        )

    @override
    def files(self) -> list[Path]:
        """List notes and codes, the names of codes if they are there, and the split file if there is one."""
        files = [self._notes_file()]
        files += [path for _, path in (*self._code_tables(), *self._name_tables())]
        if self._settings.split_file:
            files.append(Path(self._settings.split_file))
        return files

    @override
    def provides(self) -> frozenset[str]:
        """All, because dividing by texts would put a patient into two splits."""
        return frozenset(SPLITS)

    @override
    def read(
        self,
        map_unordered: MapUnordered,
        progress: Progress,
        longest: int = LONGEST_DOCUMENT,
    ) -> Iterator[Document | Rejected]:
        """Admissions in the order of their last notes in the file."""
        with progress.task("read note numbers", unit="notes") as task:
            notes = Notes(self._notes_file(), self._layout, task.advance)
        yield from notes.rejected
        codes = Codes(
            self._code_tables(),
            self._layout,
            self._settings.icd_version,
            notes.subjects.index,
            self._settings.min_code_documents,
        )
        splits = self._splits(notes, codes)
        self._report(notes, codes, splits)
        coded = codes.pairs.groupby("hadm_id")["code"].agg(tuple)
        admissions = set(coded.index) & set(splits.index)
        for admission, text in notes.texts(admissions):
            yield Document(str(admission), text, coded[admission], splits[admission])

    @override
    def label_info(self) -> LabelInfo:
        """The codes' long titles, if their tables exist."""
        names: dict[str, str] = {}
        for kind, path in self._name_tables():
            names |= names_of_codes(
                path, self._layout, self._settings.icd_version, kind
            )
        return LabelInfo(names)

    def _notes_file(self) -> Path:
        return _find(
            Path(self._settings.notes or self._settings.directory) / self._layout.notes
        )

    def _code_tables(self) -> list[tuple[CodeKind, Path]]:
        return [
            (kind, _find(self._root / self._layout.codes[kind])) for kind in self._kinds
        ]

    def _name_tables(self) -> list[tuple[CodeKind, Path]]:
        tables: list[tuple[CodeKind, Path]] = []
        for kind in self._kinds:
            candidates = _candidates(self._root / self._layout.names[kind])
            tables.extend((kind, path) for path in candidates if path.is_file())
        return tables

    def _splits(self, notes: Notes, codes: Codes) -> Column:
        """Give the split by admission; some may be left out."""
        if self._settings.split_file is None:
            return _stratified(notes, codes, self._settings.stratify)
        all_splits = read_split_file(Path(self._settings.split_file))
        splits = all_splits[all_splits.index.isin(notes.subjects.index)]
        if splits.empty:
            raise DataError(
                f"{self._settings.split_file}: none of its admissions has a note in {self._notes_file()}; give the "
                "split file of this release (data.source.split_file)"
            )
        several = int(
            (
                splits.groupby(notes.subjects[splits.index].to_numpy()).nunique() > 1
            ).sum()
        )
        if several:
            logger.warning(
                "%s: %d patients are in more than one split",
                self._settings.split_file,
                several,
            )
        return splits

    def _report(self, notes: Notes, codes: Codes, splits: Column) -> None:
        coded = codes.pairs["hadm_id"].unique()
        logger.info(
            "mimic: %d admissions with notes; without an ICD-%d code of at least %d documents %d; not in the split "
            "file %d; notes of no admission %d; rarer codes dropped %d",
            len(notes.subjects),
            self._settings.icd_version,
            self._settings.min_code_documents,
            len(notes.subjects) - len(coded),
            int((~np.isin(coded, splits.index)).sum()),
            notes.homeless,
            codes.dropped,
        )


def read_split_file(path: Path) -> Column:
    """Read the split of each admission.

    Raises:
        DataError: the file cannot be read, lacks a column, names another split, or two of them for an admission.
    """
    splits: dict[int, str] = {}
    for row in sound(format_of(path, CsvTable()).rows(path, None)):
        admission = row.cells.get("hadm_id", row.cells.get("_id"))
        split = row.cells.get("split")
        if admission is None or split is None:
            raise DataError(
                f"{row.where}: needs the columns hadm_id (or _id) and split; {shown_columns(row.cells)}"
            )
        if split not in SPLIT_NAMES:
            raise DataError(
                f"{row.where}: split {quoted_cell(split)} is none of {', '.join(SPLIT_NAMES)}"
            )
        with reading(
            row.where,
            what=f"admission {quoted_cell(admission)} is no whole number",
            fix="correct the row",
        ):
            admission = int(admission)
        earlier = splits.setdefault(admission, SPLIT_NAMES[split])
        if earlier != SPLIT_NAMES[split]:
            raise DataError(
                f"{row.where}: admission {admission} is in two splits; leave one of the rows out"
            )
    return pd.Series(splits, dtype=object)


def _stratified(notes: Notes, codes: Codes, settings: "SplitConfig") -> Column:
    admissions = np.unique(codes.pairs["hadm_id"])
    patients, group_of = np.unique(notes.subjects[admissions], return_inverse=True)
    pair_groups = group_of[np.searchsorted(admissions, codes.pairs["hadm_id"])]
    everyone = codes.pairs["number"].max() + 1
    rows = np.concatenate([pair_groups, group_of])
    columns = np.concatenate([codes.pairs["number"], np.full(len(group_of), everyone)])
    counts_GL = sparse.csr_array(
        (np.ones(len(rows)), (rows, columns)), shape=(len(patients), everyone + 1)
    )
    shares = (1 - settings.dev - settings.test, settings.dev, settings.test)
    split_G = stratify_groups(counts_GL, shares, settings.seed)
    return pd.Series(np.array(SPLITS)[split_G[group_of]], admissions)


def _find(path: Path) -> Path:
    """Find the compressed or the plain file; if neither exists, return the compressed one for the error message."""
    compressed, plain = _candidates(path)
    return plain if plain.is_file() and not compressed.is_file() else compressed


def _candidates(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".gz"), path
