"""MIMIC's readers, on synthetic tables in PhysioNet's layouts and on real cases in MIMIC-IV's."""

import csv
import gzip
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import sparse

from corpora import serial
from real_data import real_data
from xmtc.data.readers import Document, ReaderConfig, Rejected
from xmtc.data.readers.mimic_tables import dotted
from xmtc.data.readers.stream_csv import stream_columns
from xmtc.data.stratify import stratify_groups
from xmtc.errors import DataError
from xmtc.track.progress import Progress

NOTES = [
    "note_id",
    "subject_id",
    "hadm_id",
    "note_type",
    "note_seq",
    "charttime",
    "storetime",
    "text",
]
CODES = ["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"]
TITLES = ["icd_code", "icd_version", "long_title"]


def table(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def note(subject: int, hadm: Any, seq: int, text: str, kind: str = "DS") -> list[Any]:
    return [
        f"{subject}-{kind}-{seq}",
        subject,
        hadm,
        kind,
        seq,
        "2180-01-01 00:00:00",
        "",
        text,
    ]


@pytest.fixture
def mimic4(tmp_path: Path) -> Path:
    notes = [
        note(1, 11, 2, 'second "quoted",\nnote'),
        note(1, 11, 1, "addendum", "AD"),
        note(1, 12, 3, "other stay"),
        note(1, 11, 1, "first note"),
        note(2, 21, 1, "icd nine"),
        note(3, "", 1, "no admission"),
        note(4, 41, 1, "only a rare code"),
        note(5, 51, 1, "fifth"),
    ]
    diagnoses = [
        [1, 11, 2, "E1165 ", 10],
        [1, 11, 1, "I10", 10],
        [1, 12, 1, "I10", 10],
        [2, 21, 1, "4019", 9],
        [2, 21, 2, "E8495", 9],
        [4, 41, 1, "A000", 10],
        [5, 51, 1, "E1165", 10],
        [5, 51, 2, "E1165", 10],
        [9, 91, 1, "I10", 10],
    ]
    procedures = [
        [1, 11, 1, "2180-01-01", "0BH17EZ", 10],
        [1, 12, 1, "2180-01-01", "0BH17EZ", 10],
    ]
    table(tmp_path / "note/discharge.csv.gz", NOTES, notes)
    table(tmp_path / "hosp/diagnoses_icd.csv.gz", CODES, diagnoses)
    table(
        tmp_path / "hosp/procedures_icd.csv.gz",
        [*CODES[:3], "chartdate", *CODES[3:]],
        procedures,
    )
    titles = [
        ["I10", 10, "Essential (primary) hypertension"],
        ["4019", 9, "Unspecified essential hypertension"],
    ]
    table(tmp_path / "hosp/d_icd_diagnoses.csv.gz", TITLES, titles)
    return tmp_path


def reader(folder: Path, **settings: Any) -> Any:
    given = {"kind": "mimic", "directory": str(folder)} | settings
    return TypeAdapter(ReaderConfig).validate_json(json.dumps(given)).build()


def read(folder: Path, **settings: Any) -> dict[str, Document]:
    rows = list(reader(folder, **settings).read(serial, Progress(enabled=False)))
    assert not [row for row in rows if isinstance(row, Rejected)]
    return {row.doc_id: row for row in rows}


@pytest.mark.parametrize(
    ("code", "version", "kind", "expected"),
    [
        ("A000", 10, "diagnosis", "A00.0"),
        ("I10", 10, "diagnosis", "I10"),
        ("e1165 ", 10, "diagnosis", "E11.65"),
        ("S72.001A", 10, "diagnosis", "S72.001A"),
        ("4019", 9, "diagnosis", "401.9"),
        ("V3000", 9, "diagnosis", "V30.00"),
        ("E8495", 9, "diagnosis", "E849.5"),
        ("0040", 9, "procedure", "00.40"),
        ("0BH17EZ", 10, "procedure", "0BH17EZ"),
    ],
)
def test_the_dot_stands_where_people_write_it(code, version, kind, expected):
    assert dotted(code, version, kind) == expected


def test_admissions_with_joined_notes_and_dotted_codes(mimic4):
    found = read(mimic4, min_code_documents=2)
    assert set(found) == {"11", "12", "51"}
    assert found["11"].text == 'first note\n\nsecond "quoted",\nnote\n\naddendum'
    assert found["11"].labels == ("I10", "E11.65", "0BH17EZ")
    assert found["51"].labels == ("E11.65",)
    assert found["11"].split == found["12"].split  # one patient
    assert reader(mimic4).label_info().names == {
        "I10": "Essential (primary) hypertension"
    }


def test_the_other_cohort_without_procedures(mimic4):
    nine = read(mimic4, icd_version=9, min_code_documents=1)
    assert {doc_id: document.labels for doc_id, document in nine.items()} == {
        "21": ("401.9", "E849.5")
    }
    ten = read(mimic4, procedures=False, min_code_documents=1)
    assert {label for document in ten.values() for label in document.labels} == {
        "I10",
        "E11.65",
        "A00.0",
    }
    (mimic4 / "hosp/procedures_icd.csv.gz").unlink()
    assert read(mimic4, procedures=False, min_code_documents=1) == ten
    with pytest.raises(DataError, match=r"procedures_icd\.csv\.gz"):
        read(mimic4)


@pytest.mark.parametrize("ending", ["csv", "feather", "parquet"])
def test_splits_of_a_file(mimic4, ending, caplog):
    path = mimic4 / f"splits.{ending}"
    rows = pa.table(
        {"_id": [11, 12, 51, 999], "split": ["train", "val", "test", "train"]}
    )
    if ending == "csv":
        path.write_text("hadm_id,split\n11,train\n12,dev\n51,test\n")
    else:
        {"feather": pa_feather.write_feather, "parquet": pq.write_table}[ending](
            rows, path
        )
    with caplog.at_level(logging.WARNING):
        found = read(mimic4, split_file=str(path), min_code_documents=1)
    assert {doc_id: document.split for doc_id, document in found.items()} == {
        "11": "train",
        "12": "dev",
        "51": "test",
    }
    assert "1 patients are in more than one split" in caplog.text


def test_wrong_split_files(mimic4):
    path = mimic4 / "splits.csv"
    for text, message in (
        (
            "hadm_id,fold\n11,train\n",
            r"needs the columns hadm_id \(or _id\) and split; there are: hadm_id, fold",
        ),
        ("hadm_id,split\n11,moon\n", "split 'moon' is none of "),
        (
            "hadm_id,split\n11,train\n12,dev\n11,test\n",
            "admission 11 is in two splits; leave one",
        ),
        (
            "hadm_id,split\n11,train\n12.0,dev\n",
            r"splits.csv:3: admission '12.0' is no whole number",
        ),
        ("hadm_id,split\n7,train\n", "none of its admissions has a note"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read(mimic4, split_file=str(path), min_code_documents=1)


def test_fingerprint_follows_content_and_settings(mimic4, tmp_path):
    first = reader(mimic4).fingerprint()
    assert reader(mimic4, notes=str(mimic4)).fingerprint() == first
    assert reader(mimic4, procedures=False).fingerprint() != first
    table(mimic4 / "hosp/d_icd_diagnoses.csv.gz", TITLES, [["I10", 10, "Renamed"]])
    assert reader(mimic4).fingerprint() != first


def test_damaged_tables_are_named_without_their_text(mimic4):
    path = mimic4 / "note/discharge.csv.gz"
    whole = path.read_bytes()
    with gzip.open(path, "at") as file:
        file.write("x,1,11,DS,9,a secret\n")
    rows = list(
        reader(mimic4, min_code_documents=2).read(serial, Progress(enabled=False))
    )
    (bad,) = [row for row in rows if isinstance(row, Rejected)]
    assert "6 cells, but the header has 8 columns" in bad.reason
    assert bad.where.endswith("discharge.csv.gz: row 10")
    assert "secret" not in bad.where + bad.reason
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"discharge\.csv\.gz"):
        read(mimic4)
    path.unlink()
    with pytest.raises(DataError, match=r"discharge\.csv\.gz"):
        read(mimic4)


@pytest.mark.parametrize("given", ["12.0", "2.3e7", "NaN", "", "9" * 30])
def test_a_number_that_is_none_is_named_with_its_row(mimic4, given):
    patient = [note(1, 11, 1, "first"), ["x", given, 12, "DS", 2, "", "", "a secret"]]
    table(mimic4 / "note/discharge.csv.gz", NOTES, patient)
    with pytest.raises(
        DataError,
        match=rf"discharge\.csv\.gz: row 3: subject_id: '{given}': must be a whole",
    ):
        read(mimic4)


def test_rows_are_numbered_as_in_the_file_whatever_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.data.readers.stream_csv._BLOCK", 64)
    bad = {3, 4, 20, 57, 101}
    rows = ("x\n" if row in bad else f'{row},"two\nlines"\n' for row in range(2, 102))
    (tmp_path / "table.csv").write_text("a,b\n" + "".join(rows))
    blocks = [
        block
        for block in stream_columns(tmp_path / "table.csv", ["a"])
        if not isinstance(block, Rejected)
    ]
    assert len(blocks) > 1
    found = [
        (number, int(cell)) for block in blocks for number, cell in block["a"].items()
    ]
    assert found == [(row, row) for row in range(2, 102) if row not in bad]


def test_bad_rows_count_where_there_are_no_others(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1\n2\n")
    found = list(stream_columns(tmp_path / "table.csv", ["a", "b"]))
    assert [row.where[-6:] for row in found if isinstance(row, Rejected)] == [
        " row 2",
        " row 3",
    ]


def test_a_missing_column_is_named(mimic4):
    table(
        mimic4 / "hosp/diagnoses_icd.csv.gz",
        ["subject_id", "hadm_id", "seq_num", "code"],
        [[1, 11, 1, "I10"]],
    )
    with pytest.raises(DataError, match=r"'icd_code'.*subject_id, hadm_id"):
        read(mimic4)


@pytest.mark.parametrize("given", ["10.0", "", "ICD10"])
def test_a_version_that_is_none_loses_no_code_in_silence(mimic4, given):
    rows = [[1, 11, 1, "I10", 10], [1, 12, 1, "I10", given]]
    table(mimic4 / "hosp/diagnoses_icd.csv.gz", CODES, rows)
    with pytest.raises(
        DataError,
        match=rf"diagnoses_icd\.csv\.gz: row 3: icd_version: '{given}': must be 9 or 10",
    ):
        read(mimic4)


def test_an_admission_has_one_patient(mimic4):
    table(
        mimic4 / "note/discharge.csv.gz",
        NOTES,
        [note(1, 11, 1, "first"), note(2, 11, 2, "second")],
    )
    with pytest.raises(
        DataError, match=r"discharge\.csv\.gz: admission 11 has notes of two patients"
    ):
        read(mimic4)


def test_a_cut_row_of_names_is_named(mimic4):
    table(
        mimic4 / "hosp/d_icd_diagnoses.csv.gz",
        TITLES,
        [["I10", 10, "Hypertension"], ["4019", 9]],
    )
    with pytest.raises(DataError, match=r"d_icd_diagnoses\.csv\.gz: row 3: 2 cells"):
        reader(mimic4).label_info()


def test_what_tables_of_codes_do_not_give_is_said(mimic4, caplog):
    rows = [
        [1, 11, 1, "", 10],
        [1, "", 1, "I10", 10],
        [1, 11, 1, "I10", 10],
        [9, 91, 1, "I10", 10],
    ]
    table(mimic4 / "hosp/diagnoses_icd.csv.gz", CODES, rows)
    table(mimic4 / "hosp/procedures_icd.csv.gz", CODES, [])
    with caplog.at_level(logging.INFO):
        assert set(read(mimic4, min_code_documents=1)) == {"11"}
    assert (
        "diagnoses_icd.csv.gz: rows without an admission or a code, left out: 2"
        in caplog.text
    )
    assert (
        "procedures_icd.csv.gz: no admission with a note has a procedure of ICD version 10"
        in caplog.text
    )
    with pytest.raises(
        DataError,
        match=r"no code has 9 admissions, and the most frequent 1; .*min_code_documents",
    ):
        read(mimic4, min_code_documents=9)


def test_a_column_that_is_there_twice_is_not_chosen_by_chance(mimic4):
    table(
        mimic4 / "hosp/diagnoses_icd.csv.gz",
        [*CODES, "HADM_ID"],
        [[1, 11, 1, "I10", 10, 1]],
    )
    with pytest.raises(
        DataError, match=r"diagnoses_icd\.csv\.gz: 2 columns are called 'hadm_id'"
    ):
        read(mimic4)


def test_mimic_three(tmp_path):
    header = [
        "ROW_ID",
        "SUBJECT_ID",
        "HADM_ID",
        "CHARTDATE",
        "CHARTTIME",
        "CATEGORY",
        "DESCRIPTION",
        "ISERROR",
        "TEXT",
    ]
    rows = [
        [1, 1, 10, "2101-01-03", "", "Discharge summary", "Addendum", "", "addendum"],
        [2, 1, 10, "2101-01-02", "", "Discharge summary", "Report", "", "report"],
        [3, 1, 10, "2101-01-02", "", "Nursing", "Report", "", "nursing"],
        [4, 2, 20, "2101-01-02", "", "Discharge summary", "Report", "1", "withdrawn"],
        [5, 2, 20, "2101-01-02", "", "Discharge summary", "Report", "", "kept"],
    ]
    table(tmp_path / "NOTEEVENTS.csv.gz", header, rows)
    header = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "SEQ_NUM", "ICD9_CODE"]
    table(
        tmp_path / "DIAGNOSES_ICD.csv.gz",
        header,
        [[1, 1, 10, 1, "0389"], [2, 2, 20, 1, "0389"], [3, 2, 20, "", ""]],
    )
    table(
        tmp_path / "PROCEDURES_ICD.csv.gz",
        header,
        [[1, 1, 10, 1, "0040"], [2, 2, 20, 1, "9671"]],
    )
    found = read(tmp_path, release="iii", icd_version=9, min_code_documents=1)
    assert found["10"].text == "report\n\naddendum"
    assert found["10"].labels == ("038.9", "00.40")
    assert found["20"].text == "kept"
    with pytest.raises(ValidationError, match="icd_version"):
        reader(tmp_path, release="iii")


def test_stratification_divides_every_label(tmp_path):
    random = np.random.default_rng(0)
    labels = (random.random((2000, 60)) < random.uniform(0.001, 0.3, 60)).astype(int)
    counts = sparse.csr_array(np.concatenate([labels, np.ones((2000, 1), int)], axis=1))
    split = stratify_groups(counts, (0.8, 0.1, 0.1), seed=3)
    assert np.array_equal(split, stratify_groups(counts, (0.8, 0.1, 0.1), seed=3))
    assert np.bincount(split).tolist() == pytest.approx([1600, 200, 200], abs=20)
    frequent = labels.sum(0) >= 100
    shares = labels[split == 1].sum(0)[frequent] / labels.sum(0)[frequent]
    assert np.abs(shares - 0.1).max() < 0.03
    by_chance = random.permutation(split)
    drawn = labels[by_chance == 1].sum(0)[frequent] / labels.sum(0)[frequent]
    assert np.abs(shares - 0.1).mean() < 0.5 * np.abs(drawn - 0.1).mean()


@pytest.mark.data
def test_real_cases_in_the_layout():
    documents = read(real_data("mimic4_layout"), min_code_documents=2)
    assert Counter(document.split for document in documents.values()) == {
        "train": 596,
        "dev": 75,
        "test": 75,
    }
    counts = Counter(
        label for document in documents.values() for label in document.labels
    )
    assert min(counts.values()) >= 2
    first = documents["20000001"]
    assert first.text.startswith("We describe the case of a 37-year-old man")
    assert first.labels[:3] == ("N44.8", "R60.9", "R52")
    names = reader(real_data("mimic4_layout")).label_info().names
    assert names["N44.8"] == "Other noninflammatory disorders of the testis"
