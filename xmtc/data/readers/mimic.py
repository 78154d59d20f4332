"""MIMIC-IV and MIMIC-III from PhysioNet's files, unchanged: one document per admission, its ICD codes as labels.

Notes are streamed, twice: once for which notes belong to which admission, once for their text. Only the codes and the
admissions' numbers are held in memory, and the texts of an admission with several notes lie on disk until the last.

Suffixes: A admissions with notes, G patients, L codes.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import SPLITS, Document, LabelInfo, Reader, Rejected, quoted_cell, shown_columns
from xmtc.data.readers.config import MimicConfig, SplitConfig
from xmtc.data.readers.files import check_file, content_hash
from xmtc.data.readers.mimic_tables import CodeKind, Codes, Layout, Notes, names_of_codes
from xmtc.data.stratify import stratify_groups
from xmtc.errors import DataError
from xmtc.files import reading
from xmtc.track.progress import Progress

logger = logging.getLogger(__name__)

_LAYOUTS = {
    "iv": Layout(
        "note/discharge.csv",
        "hosp/diagnoses_icd.csv",
        "hosp/procedures_icd.csv",
        "hosp/d_icd_diagnoses.csv",
        "hosp/d_icd_procedures.csv",
        code="icd_code",
        version="icd_version",
        order=("note_seq", "charttime"),
        note_kind="note_type",
    ),
    "iii": Layout(
        "NOTEEVENTS.csv",
        "DIAGNOSES_ICD.csv",
        "PROCEDURES_ICD.csv",
        "D_ICD_DIAGNOSES.csv",
        "D_ICD_PROCEDURES.csv",
        code="icd9_code",
        version=None,
        order=("chartdate", "charttime", "row_id"),
        note_kind="description",
        only=(("category", "Discharge summary"), ("iserror", "")),
    ),
}
_SPLIT_NAMES = {"train": 0, "dev": 1, "val": 1, "valid": 1, "validation": 1, "test": 2}
_ID_COLUMNS = ("hadm_id", "_id")


class MimicReader(Reader):
    """A `Reader`.

    Args:
        settings: the `data.source` section.
    """

    def __init__(self, settings: MimicConfig) -> None:
        self._settings = settings
        self._root, self._layout = Path(settings.directory), _LAYOUTS[settings.release]

    @override
    def fingerprint(self) -> str:
        settings = {k: v for k, v in asdict(self._settings).items() if k not in ("directory", "notes", "split_file")}
        return f"mimic:{json.dumps(settings, sort_keys=True)}:{content_hash(self.files())}"

    def files(self) -> list[Path]:
        """List notes and codes, the names of codes if they are there, and the split file if there is one."""
        given = [Path(self._settings.split_file)] if self._settings.split_file else []
        return [self._notes_file(), *(path for _, path in (*self._code_tables(), *self._name_tables())), *given]

    @override
    def provides(self) -> frozenset[str]:
        """All, because dividing by texts would put a patient into two splits."""
        return frozenset(SPLITS)

    @override
    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """Admissions in the order of their last notes in the file."""
        with progress.task("read note numbers", unit="notes") as task:
            notes = Notes(self._notes_file(), self._layout, task.advance)
        yield from notes.rejected
        codes = Codes(
            self._code_tables(),
            self._layout,
            self._settings.icd_version,
            notes.hadm_A,
            self._settings.min_code_documents,
        )
        split_A = self._splits(notes, codes)
        coded_A = np.diff(codes.offsets_A) > 0
        self._report(notes, codes, coded_A, split_A)
        wanted = set(np.flatnonzero(coded_A & (split_A >= 0)).tolist())
        for admission, text in notes.texts(wanted):
            yield Document(str(notes.hadm_A[admission]), text, codes.of(admission), SPLITS[split_A[admission]])

    @override
    def label_info(self) -> LabelInfo:
        """The codes' long titles, if their tables exist."""
        names: dict[str, str] = {}
        for kind, path in self._name_tables():
            names |= names_of_codes(path, self._layout, self._settings.icd_version, kind)
        return LabelInfo(names)

    def _notes_file(self) -> Path:
        return _find(Path(self._settings.notes or self._settings.directory) / self._layout.notes)

    def _code_tables(self) -> list[tuple[CodeKind, Path]]:
        root, layout = self._root, self._layout
        tables: list[tuple[CodeKind, Path]] = [("diagnosis", _find(root / layout.diagnoses))]
        return [*tables, ("procedure", _find(root / layout.procedures))] if self._settings.procedures else tables

    def _name_tables(self) -> list[tuple[CodeKind, Path]]:
        root, layout = self._root, self._layout
        tables: list[tuple[CodeKind, str]] = [("diagnosis", layout.diagnosis_names)]
        if self._settings.procedures:
            tables.append(("procedure", layout.procedure_names))
        return [(kind, path) for kind, name in tables for path in _candidates(root / name) if path.is_file()]

    def _splits(self, notes: Notes, codes: Codes) -> NDArray[np.int8]:
        """Assign each admission to a split, (A,) index into SPLITS; -1 for admissions that are left out."""
        if self._settings.split_file is None:
            return _stratified(notes, codes, self._settings.stratify)
        given = read_split_file(Path(self._settings.split_file))
        split_A = np.array([given.get(int(hadm), -1) for hadm in notes.hadm_A], dtype=np.int8)
        if not (split_A >= 0).any():
            raise DataError(f"{self._settings.split_file}: none of its admissions has a note in {self._notes_file()}")
        known = split_A >= 0
        pairs = np.unique(np.stack([notes.subject_A[known], split_A[known]]), axis=1)
        several = pairs.shape[1] - len(np.unique(pairs[0]))
        if several:
            logger.warning("%s: %d patients are in more than one split", self._settings.split_file, several)
        return split_A

    def _report(self, notes: Notes, codes: Codes, coded_A: NDArray[np.bool_], split_A: NDArray[np.int8]) -> None:
        logger.info(
            "mimic: %d admissions with notes; without an ICD-%d code of at least %d documents %d; not in the split "
            "file %d; notes of no admission %d; rarer codes dropped %d",
            len(coded_A),
            self._settings.icd_version,
            self._settings.min_code_documents,
            int((~coded_A).sum()),
            int((coded_A & (split_A < 0)).sum()),
            notes.homeless,
            codes.dropped,
        )


def read_split_file(path: Path) -> dict[int, int]:
    """Read the split of each admission, as an index into SPLITS.

    Raises:
        DataError: the file cannot be read, lacks a column, names another split, or two of them for an admission.
    """
    table = _table(path)
    ids = next((name for name in _ID_COLUMNS if name in table.column_names), None)
    if ids is None or "split" not in table.column_names:
        there = shown_columns(table.column_names)
        raise DataError(f"{path}: needs the columns hadm_id (or _id) and split; {there}")
    rows: dict[Any, Any] = {}
    for hadm, split in zip(table[ids].to_pylist(), table["split"].to_pylist(), strict=True):
        if rows.setdefault(hadm, split) != split:
            raise DataError(f"{path}: admission {hadm} is in two splits; leave one of the rows out")
    unknown = sorted({str(split) for split in rows.values()} - set(_SPLIT_NAMES))
    if unknown:
        raise DataError(f"{path}: split {quoted_cell(unknown[0])} is none of {', '.join(_SPLIT_NAMES)}")
    try:
        return {int(hadm): _SPLIT_NAMES[split] for hadm, split in rows.items()}
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: column {ids}: {error}") from None


def _table(path: Path) -> pa.Table:
    check_file(path)
    with reading(path, what="cannot be read as a table"):
        if path.suffix == ".parquet":
            return pq.read_table(path)
        return pa_feather.read_table(path) if path.suffix == ".feather" else pa_csv.read_csv(path)


def _stratified(notes: Notes, codes: Codes, settings: SplitConfig) -> NDArray[np.int8]:
    admissions = np.unique(codes.admission_P)
    patients, group_of = np.unique(notes.subject_A[admissions], return_inverse=True)
    pair_groups = group_of[np.searchsorted(admissions, codes.admission_P)]
    rows = np.concatenate([pair_groups, group_of])
    columns = np.concatenate([codes.ids_P, np.full(len(group_of), len(codes.codes))])
    shape = (len(patients), len(codes.codes) + 1)
    counts_GL = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    shares = (1 - settings.dev - settings.test, settings.dev, settings.test)
    split_A = np.full(len(notes.hadm_A), -1, dtype=np.int8)
    split_A[admissions] = stratify_groups(counts_GL, shares, settings.seed)[group_of]
    return split_A


def _find(path: Path) -> Path:
    """Find the compressed or the plain file; if neither exists, return the compressed one for the error message."""
    return next((found for found in _candidates(path) if found.is_file()), _candidates(path)[0])


def _candidates(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".gz"), path
