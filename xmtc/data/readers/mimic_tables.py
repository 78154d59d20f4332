"""Notes and codes of MIMIC's admissions, read in blocks.

Suffixes: N notes, A admissions with notes, P (admission, code) pairs.
"""

import tempfile
from array import array
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.config import IcdVersion
from xmtc.data.readers.stream_csv import stream_columns
from xmtc.errors import DataError

CodeKind = Literal["diagnosis", "procedure"]
Block = dict[str, pa.Array]
_ADDENDA = {"AD", "Addendum"}
_EMPTY = pa.scalar("")


@dataclass(frozen=True)
class Layout:
    """Where a release keeps what. Columns are found without regard to case.

    Attributes:
        notes, diagnoses, procedures, diagnosis_names, procedure_names: files, without `.gz`.
        code, version: columns; version None if all codes are ICD-9.
        order: columns that put the notes of an admission in order, after its addenda have gone to the end.
        note_kind: column that tells addenda.
        only: column -> value of the rows that are discharge summaries.
    """

    notes: str
    diagnoses: str
    procedures: str
    diagnosis_names: str
    procedure_names: str
    code: str
    version: str | None
    order: tuple[str, ...]
    note_kind: str
    only: tuple[tuple[str, str], ...] = ()


class Notes:
    """Which admissions have notes, and in which order those of one admission belong.

    Attributes:
        hadm_A, subject_A: int64, by admission, ascending.
        homeless: discharge summaries of no admission.
        rejected: rows that could not be read.
    """

    def __init__(self, path: Path, layout: Layout, advance: Callable[[int], None]) -> None:
        """Read everything but the texts.

        Raises:
            DataError: see `stream_columns`, or there are no notes.
        """
        self._path, self._layout = path, layout
        self.rejected: list[Rejected] = []
        self.homeless = 0
        hadm, subject, keys = array("q"), array("q"), list[tuple[str, ...]]()
        for block in self._blocks(("subject_id", layout.note_kind, *layout.order)):
            hadm.extend(whole_numbers(block["hadm_id"], path, "hadm_id").tolist())
            subject.extend(whole_numbers(block["subject_id"], path, "subject_id").tolist())
            keys += _order_keys(block, layout)
            advance(len(block["hadm_id"]))
        if not hadm:
            raise DataError(f"{path}: no discharge summaries; give the file of MIMIC's discharge notes")
        found = np.unique(np.array(hadm, np.int64), return_index=True, return_inverse=True)
        self.hadm_A, first_A, self._admission_N = found
        self.subject_A = np.array(subject, np.int64)[first_A]
        self._count_A = np.bincount(self._admission_N)
        self._keys = {int(n): keys[n] for n in np.flatnonzero(self._count_A[self._admission_N] > 1)}

    def texts(self, wanted: Set[int]) -> Iterator[tuple[int, str]]:
        """Yield each wanted admission with its joined notes, once the last of them has been read.

        Notes of admissions with several wait on disk.
        """
        self.rejected, self.homeless = [], 0
        waiting: dict[int, list[tuple[tuple[str, ...], int, int]]] = {}
        number = -1
        with tempfile.TemporaryFile() as aside:
            for block in self._blocks(("text",)):
                for text in block["text"]:
                    number += 1
                    admission = int(self._admission_N[number])
                    if admission not in wanted:
                        continue
                    if self._count_A[admission] == 1:
                        yield admission, text.as_py()
                        continue
                    data = text.as_py().encode()
                    parts = waiting.setdefault(admission, [])
                    parts.append((self._keys[number], aside.seek(0, 2), len(data)))
                    aside.write(data)
                    if len(parts) == self._count_A[admission]:
                        yield admission, "\n\n".join(_piece(aside, *where) for _, *where in sorted(parts))
                        del waiting[admission]

    def _blocks(self, columns: tuple[str, ...]) -> Iterator[Block]:
        """Yield the blocks of discharge summaries that have an admission."""
        layout = self._layout
        for block in stream_columns(self._path, ["hadm_id", *columns, *(name for name, _ in layout.only)]):
            if isinstance(block, Rejected):
                self.rejected.append(block)
                continue
            kept = pa.array(np.ones(len(block["hadm_id"]), dtype=bool))
            for name, value in layout.only:
                kept = _compute("and", kept, _compute("equal", block[name], pa.scalar(value)))
            housed = _compute("not_equal", block["hadm_id"], _EMPTY)
            self.homeless += _compute("sum", _compute("and_not", kept, housed)).as_py() or 0
            kept = _compute("and", kept, housed)
            yield {name: column.filter(kept) for name, column in block.items()}


class Codes:
    """The codes of the admissions that have notes, those of few documents left out.

    Args:
        tables: diagnoses, then procedures.
        layout: layout of the release.
        version: whose codes to take.
        hadm_A: admissions, ascending.
        least: documents that a code must have.

    Attributes:
        offsets_A: int64 (A + 1,), into `ids_P`.
        ids_P: int32, diagnoses before procedures, each in the order of their sequence numbers.
        codes: dotted, by id.
        dropped: codes of fewer documents.
    """

    def __init__(
        self,
        tables: list[tuple[CodeKind, Path]],
        layout: Layout,
        version: IcdVersion,
        hadm_A: NDArray[np.int64],
        least: int,
    ) -> None:
        known: dict[str, int] = {}
        parts = [
            (admission, np.full(len(admission), kind), sequence, ids)
            for kind, (name, path) in enumerate(tables)
            for admission, sequence, ids in _code_rows(path, layout, version, name, hadm_A, known)
        ]
        if not parts:
            raise DataError(
                f"{tables[0][1]}: no admission with a note has a code of ICD version {version}; "
                "see data.source.icd_version"
            )
        admission_P, kind_P, sequence_P, ids_P = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((sequence_P, kind_P, admission_P))
        pairs = admission_P[order] * len(known) + ids_P[order]
        order = order[np.sort(np.unique(pairs, return_index=True)[1])]  # a code counts once an admission
        counts = np.bincount(ids_P[order], minlength=len(known))
        order = order[counts[ids_P[order]] >= least]
        self.codes = list(known)
        self.dropped = int((counts < least).sum())
        self.ids_P = ids_P[order].astype(np.int32)
        self.admission_P = admission_P[order]
        self.offsets_A = np.searchsorted(self.admission_P, np.arange(len(hadm_A) + 1))

    def of(self, admission: int) -> tuple[str, ...]:
        """Return the codes of an admission."""
        ids = self.ids_P[self.offsets_A[admission] : self.offsets_A[admission + 1]]
        return tuple(self.codes[i] for i in ids)


def dotted(code: str, version: IcdVersion, kind: CodeKind) -> str:
    """Put the dot of a code in its standard place.

    ICD-10-CM and ICD-9-CM diagnoses have it after the third character, ICD-9-CM external causes (E codes) after the
    fourth, ICD-9-CM procedures after the second; ICD-10-PCS has none.

    Args:
        code: with or without the dot; blanks around it are left out.
        version: version of the classification.
        kind: diagnosis or procedure.
    """
    bare = code.strip().upper().replace(".", "")
    if kind == "procedure":
        place = 2 if version == 9 else len(bare)
    else:
        place = 4 if version == 9 and bare.startswith("E") else 3
    return f"{bare[:place]}.{bare[place:]}" if len(bare) > place else bare


def names_of_codes(path: Path, layout: Layout, version: IcdVersion, kind: CodeKind) -> dict[str, str]:
    """Map each dotted code to its long title."""
    columns = [layout.code, "long_title", *([layout.version] if layout.version else [])]
    names: dict[str, str] = {}
    for block in stream_columns(path, columns):
        if not isinstance(block, Rejected):
            block = _of_version(block, layout, version)
            codes, titles = block[layout.code].to_pylist(), block["long_title"].to_pylist()
            names |= {dotted(code, version, kind): title for code, title in zip(codes, titles, strict=True)}
    return names


def whole_numbers(column: pa.Array, path: Path, name: str) -> NDArray[np.int64]:
    """Parse a column of text as int64.

    Raises:
        DataError: something in it is not a whole number.
    """
    try:
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: column {name} holds something that is not a whole number") from error


def _code_rows(
    path: Path, layout: Layout, version: IcdVersion, kind: CodeKind, hadm_A: NDArray[np.int64], known: dict[str, int]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield admission, sequence number and code id of the rows of admissions with notes, a block at a time."""
    columns = ["hadm_id", "seq_num", layout.code, *([layout.version] if layout.version else [])]
    for block in stream_columns(path, columns):
        if isinstance(block, Rejected):
            raise DataError(f"{block.where}: {block.reason}")
        block = _of_version(block, layout, version)
        block = _where(
            block, _compute("and", *(_compute("not_equal", block[name], _EMPTY) for name in ("hadm_id", layout.code)))
        )
        hadm = whole_numbers(block["hadm_id"], path, "hadm_id")
        place = np.minimum(np.searchsorted(hadm_A, hadm), len(hadm_A) - 1)
        noted = hadm_A[place] == hadm
        coded = block[layout.code].filter(pa.array(noted)).dictionary_encode()
        words = [dotted(code, version, kind) for code in coded.dictionary.to_pylist()]
        ids = np.array([known.setdefault(word, len(known)) for word in words], dtype=np.int64)
        empty = _compute("equal", block["seq_num"], _EMPTY)
        filled = _compute("if_else", empty, pa.scalar("0"), block["seq_num"])
        sequence = whole_numbers(filled, path, "seq_num")[noted]
        yield place[noted], sequence, ids[coded.indices.to_numpy()]


def _of_version(block: Block, layout: Layout, version: IcdVersion) -> Block:
    return _where(block, _compute("equal", block[layout.version], pa.scalar(str(version)))) if layout.version else block


def _compute(function: str, *arguments: Any) -> Any:
    """Call a PyArrow function by name, because type checkers do not see functions that it makes on import."""
    return pc.call_function(function, list(arguments))


def _where(block: Block, mask: pa.Array) -> Block:
    return {name: column.filter(mask) for name, column in block.items()}


def _order_keys(block: Block, layout: Layout) -> list[tuple[str, ...]]:
    """Sort keys: addenda last, then the columns of `order`; numbers filled with zeros sort as text."""
    last = ["1" if kind in _ADDENDA else "0" for kind in block[layout.note_kind].to_pylist()]
    columns = [[value.zfill(20) for value in block[name].to_pylist()] for name in layout.order]
    return list(zip(last, *columns, strict=True))


def _piece(file: IO[bytes], start: int, length: int) -> str:
    file.seek(start)
    return file.read(length).decode()
