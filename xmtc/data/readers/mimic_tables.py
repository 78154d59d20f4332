"""Notes and codes of MIMIC's admissions, read in blocks."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from xmtc.data.readers.base import Rejected, quoted_cell, sound
from xmtc.data.readers.stream_csv import Column, Rows, stream_columns
from xmtc.errors import DataError

CodeKind = Literal["diagnosis", "procedure"]
IcdVersion = Literal[9, 10]
logger = logging.getLogger(__name__)
_ADDENDA = {"AD", "Addendum"}


@dataclass(frozen=True)
class Layout:
    """Where a release keeps what. Columns are found without regard to case.

    Attributes:
        notes: file, without `.gz`.
        codes, names: files of the admissions' codes, and of the codes' names, by kind.
        code, version: columns; version None if all codes are ICD-9.
        order: columns that put the notes of an admission in order, after its addenda have gone to the end.
        note_kind: column that tells addenda.
        only: column -> value of the rows that are discharge summaries.
    """

    notes: str
    codes: Mapping[CodeKind, str]
    names: Mapping[CodeKind, str]
    code: str
    version: str | None
    order: tuple[str, ...]
    note_kind: str
    only: tuple[tuple[str, str], ...] = ()


class Notes:
    """Which admissions have notes, and in which order those of one admission belong.

    Attributes:
        rows: a discharge summary of an admission each, in the order of the file: `hadm_id`, `subject_id`, and `place`,
            which ascends from an admission's first note to its last.
        subjects: patient by admission.
        homeless: discharge summaries of no admission.
        rejected: rows that could not be read.
    """

    def __init__(
        self, path: Path, layout: Layout, advance: Callable[[int], None]
    ) -> None:
        """Read everything but the texts.

        Raises:
            DataError: see `stream_columns`, there are no notes, or an admission is of two patients.
        """
        self._path, self._layout = path, layout
        self.rejected: list[Rejected] = []
        self.homeless = 0
        blocks: list[Rows] = []
        for block in self._blocks(("subject_id", layout.note_kind, *layout.order)):
            numbers = {
                name: whole_numbers(block[name], path)
                for name in ("hadm_id", "subject_id")
            }
            order = {
                name: block[name].str.zfill(20) for name in layout.order
            }  # numbers sort as text
            blocks.append(
                pd.DataFrame(
                    {**numbers, "last": block[layout.note_kind].isin(_ADDENDA), **order}
                )
            )
            advance(len(block))
        rows: Rows = pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame()
        if rows.empty:
            raise DataError(
                f"{path}: no discharge summaries; give the file of MIMIC's discharge notes"
            )
        ordered = rows.sort_values(["last", *layout.order], kind="stable").index
        self.rows = rows[["hadm_id", "subject_id"]].assign(
            place=pd.Series(np.arange(len(rows)), ordered)
        )
        self.subjects = rows.drop_duplicates(["hadm_id", "subject_id"]).set_index(
            "hadm_id"
        )["subject_id"]
        if len(shared := self.subjects.index[self.subjects.index.duplicated()]):
            raise DataError(
                f"{path}: admission {shared[0]} has notes of two patients; correct hadm_id or subject_id"
            )

    def texts(self, wanted: Set[int]) -> Iterator[tuple[int, str]]:
        """Yield each wanted admission with its joined notes, once the last of them has been read."""
        self.rejected, self.homeless = [], 0
        missing = self.rows["hadm_id"].value_counts().to_dict()
        waiting: dict[int, list[tuple[int, str]]] = {}
        rows = zip(self.rows["hadm_id"], self.rows["place"], strict=True)
        for block in self._blocks(("text",)):
            for text in block["text"]:
                admission, place = next(rows)
                if admission not in wanted:
                    continue
                waiting.setdefault(admission, []).append((place, text))
                if len(waiting[admission]) == missing[admission]:
                    yield (
                        admission,
                        "\n\n".join(text for _, text in sorted(waiting.pop(admission))),
                    )

    def _blocks(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the blocks of discharge summaries that have an admission."""
        only = dict(self._layout.only)
        for block in stream_columns(self._path, ["hadm_id", *columns, *only]):
            if isinstance(block, Rejected):
                self.rejected.append(block)
                continue
            summaries = block[
                (block[list(only)] == pd.Series(only, dtype=str)).all(axis=1)
            ]
            housed = summaries["hadm_id"] != ""
            self.homeless += int((~housed).sum())
            yield summaries[housed]


class Codes:
    """The codes of the admissions that have notes, those of few documents left out.

    Args:
        tables: diagnoses, then procedures.
        layout: layout of the release.
        version: whose codes to take.
        admissions: which to take.
        least: documents that a code must have.

    Attributes:
        pairs: `hadm_id`, `code` (dotted) and `number` of the code; diagnoses before procedures, each in the order of
            their sequence numbers.
        dropped: codes of fewer documents.
    """

    def __init__(
        self,
        tables: Sequence[tuple[CodeKind, Path]],
        layout: Layout,
        version: IcdVersion,
        admissions: Column,
        least: int,
    ) -> None:
        blocks: list[Rows] = [pd.DataFrame()]
        for kind, path in tables:
            own = [
                block[block["hadm_id"].isin(admissions)]
                for block in _code_rows(path, layout, version, kind)
            ]
            if not any(map(len, own)):
                logger.warning(
                    "%s: no admission with a note has a %s of ICD version %d",
                    path,
                    kind,
                    version,
                )
            blocks += own
        rows: Rows = pd.concat(blocks, ignore_index=True)
        if rows.empty:
            raise DataError(
                f"{tables[0][1]}: no note has a code of ICD version {version}; see data.source.icd_version"
            )
        rows = rows.assign(number=pd.factorize(rows["code"])[0])
        rows = rows.sort_values(
            ["hadm_id", "kind", "sequence"], kind="stable"
        ).drop_duplicates(["hadm_id", "code"])
        documents = rows.groupby("code")["hadm_id"].transform("size")
        self.pairs = rows[documents >= least]
        if self.pairs.empty:
            most = f"no code has {least} admissions, and the most frequent {documents.max()}"
            raise DataError(
                f"{tables[0][1]}: {most}; lower data.source.min_code_documents"
            )
        self.dropped = rows["code"].nunique() - self.pairs["code"].nunique()


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


def names_of_codes(
    path: Path, layout: Layout, version: IcdVersion, kind: CodeKind
) -> dict[str, str]:
    """Map each dotted code to its long title."""
    names: dict[str, str] = {}
    for block in sound(stream_columns(path, _code_columns(layout, "long_title"))):
        block = _of_version(block, layout, version, path)
        names |= zip(
            (dotted(code, version, kind) for code in block[layout.code]),
            block["long_title"],
            strict=True,
        )
    return names


def whole_numbers(column: Column, path: Path) -> Column:
    """Parse a column of text.

    Raises:
        DataError: something in it is not a whole number; names the first such row.
    """
    try:
        return column.astype(np.int64)
    except (ValueError, OverflowError):
        wrong = column[~column.str.fullmatch(r"\s*-?\d{1,18}\s*")]
        raise unfit(
            wrong, path, "a whole number, such as 20000001 (not 20000001.0 or 2e7)"
        ) from None


def unfit(wrong: Column, path: Path, needed: str) -> DataError:
    """Make the error for the first cell of a column that is not as it must be."""
    return DataError(
        f"{path}: row {wrong.index[0]}: {wrong.name}: {quoted_cell(wrong.iloc[0])}: must be {needed}"
    )


def _code_rows(
    path: Path, layout: Layout, version: IcdVersion, kind: CodeKind
) -> Iterator[Rows]:
    """Yield admissions, kind, sequence numbers and dotted codes, a block at a time."""
    blank = 0
    for block in sound(
        stream_columns(path, _code_columns(layout, "hadm_id", "seq_num"))
    ):
        block = _of_version(block, layout, version, path)
        whole = (block["hadm_id"] != "") & (block[layout.code] != "")
        blank, block = blank + int((~whole).sum()), block[whole]
        codes = block[layout.code].astype("category")
        yield pd.DataFrame(
            {
                "hadm_id": whole_numbers(block["hadm_id"], path),
                "kind": kind,
                "sequence": whole_numbers(block["seq_num"].replace("", "0"), path),
                "code": codes.map(
                    {code: dotted(code, version, kind) for code in codes.cat.categories}
                ).astype(str),
            }
        )
    if blank:
        logger.info(
            "%s: rows without an admission or a code, left out: %d", path, blank
        )


def _code_columns(layout: Layout, *others: str) -> list[str]:
    return [*others, layout.code, *([layout.version] if layout.version else [])]


def _of_version(block: Rows, layout: Layout, version: IcdVersion, path: Path) -> Rows:
    given = block[layout.version] if layout.version else pd.Series("9", block.index)
    if len(strange := given[~given.isin(("9", "10"))]):
        raise unfit(strange, path, "9 or 10")
    return block[given == str(version)]
