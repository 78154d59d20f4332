"""What must not come out: texts in messages, credentials in files, formulas in tables, commands to a terminal."""

import csv
import io
import json
import re
import stat
import string
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

import tiny_runs
import xmtc as package
from xmtc.config.plain import redacted
from xmtc.data.labels import LabelTable
from xmtc.evaluate.spreadsheet import to_csv
from xmtc.report.evidence import explain_text, print_sections
from xmtc.report.run_results import RunResults
from xmtc.report.write import write_report
from xmtc.track.console import print_line, printable

SECRET = "Mrs Smith has a broken heart"


@given(st.text())
def test_a_terminal_gets_nothing_to_obey(text):
    shown = printable(text)
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown
    )
    shown.encode()
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_labels_and_texts_reach_the_terminal_without_escape_sequences(whole, capsys):
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    model = package.Model.from_pretrained(whole.run / "model")
    labels = [f"{evil}{label}" for label in model.labels.labels]
    model.scorer.labels = LabelTable(labels, labels, model.labels.train_counts)
    console = Console(file=io.StringIO(), width=200)
    print_sections(explain_text(model, f"lawery {evil} fishing", [], 2), console)
    print_line(evil, console)
    print(printable(evil))
    said = console.file.getvalue() + capsys.readouterr().out
    assert not set("\x1b\x07\x9b\u202e") & set(said)
    assert "\\u001b" in said


cells = st.text(st.sampled_from("=+-@\t\r '\"a1,.\n"), max_size=8)


@given(st.lists(cells, min_size=1, max_size=5))
@example(["-1\n"])
def test_no_cell_is_a_formula(texts):
    written = to_csv(pd.DataFrame({"=cmd": texts, "n": range(len(texts))}))
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows[0] == ["'=cmd", "n"]
    for text, row in zip(texts, rows[1:], strict=True):
        line = text.replace("\r", " ")
        assert row[0] in (line, f"'{line}")
        if row[0].lstrip()[:1] in tuple("=+-@"):
            assert re.fullmatch(r"[+-]?[\d.,]+", row[0])


def test_tables_of_evaluations_and_reports_hold_no_formula(whole, tmp_path):
    run = RunResults.load(whole.run)
    evil = '=HYPERLINK("http://x";"y")'
    names = pa.array([f"{evil}{i}" for i in range(run.per_label.num_rows)])
    table = run.per_label
    for column in ("label", "name"):
        table = table.set_column(table.column_names.index(column), column, names)
    write_report([replace(run, per_label=table)], tmp_path / "report.html")
    tables = [path.read_text() for path in (tmp_path / "report_tables").glob("*.csv")]
    found = [
        cell
        for text in tables
        for row in csv.reader(io.StringIO(text))
        for cell in row
        if "HYPERLINK" in cell
    ]
    assert found
    assert all(cell.startswith("'=") for cell in found)


words = st.text(string.ascii_letters + string.digits + "%._-", min_size=1, max_size=8)


@given(
    st.sampled_from(["http", "s3", "postgresql+psycopg2", "https"]), words, words, words
)
def test_credentials_in_uris_are_masked(scheme, user, password, host):
    plain = {
        "uri": f"{scheme}://{user}:{password}@{host}.example:5000/x",
        "sinks": [
            {
                "tracking_uri": f"{scheme}://{user}@{host}/?a=b&access_token={password}&c=d"
            }
        ],
        "command": [
            f"track.sinks=[{{kind: mlflow, tracking_uri: '{scheme}://{user}:{password}@{host}'}}]"
        ],
        "n": 3,
    }
    assert redacted(plain) == {
        "uri": f"{scheme}://***@{host}.example:5000/x",
        "sinks": [{"tracking_uri": f"{scheme}://***@{host}/?a=b&access_token=***&c=d"}],
        "command": [
            f"track.sinks=[{{kind: mlflow, tracking_uri: '{scheme}://***@{host}'}}]"
        ],
        "n": 3,
    }


@given(st.text(st.characters(exclude_characters="@?&;"), max_size=30))
def test_nothing_else_is_masked(text):
    assert redacted(text) == text


def test_a_run_keeps_no_password(tmp_path, xmtc, monkeypatch):
    config = tiny_runs.write_config(tmp_path)
    monkeypatch.setattr("xmtc.pipeline.check_machine", lambda config: None)
    sinks = "track.sinks=[{kind: mlflow, tracking_uri: 'http://me:hunter2@127.0.0.1:1/?token=hunter2'}]"
    assert xmtc("train", config, sinks, "mig.min_documents=1000").code == 1
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert {"config.yaml", "run.json"} <= {path.name for path in kept}
    assert [path for path in kept if b"hunter2" in path.read_bytes()] == []
    assert (
        "http://***@127.0.0.1:1/?token=***"
        in (tmp_path / "runs" / "tiny" / "config.yaml").read_text()
    )


def source(folder: Path, name: str, content: str, **columns: str) -> str:
    (folder / name).write_text(content)
    kind = {"csv": "csv", "jsonl": "jsonl"}[name.rpartition(".")[2]]
    given = json.dumps(
        {"kind": kind, "files": {"train": str(folder / name)}, "columns": columns}
    )
    return f"data.source={given}"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", f"{SECRET},law\n{SECRET},fish\n", {}),
        ("a.csv", f'"{SECRET}",text\nlaw,fish\n', {"labels": "absent"}),
        ("a.jsonl", json.dumps({SECRET: "x", "text": "y"}), {}),
        (
            "a.jsonl",
            json.dumps({"text": "y", "labels": ["law"], "split": SECRET}),
            {"split": "split"},
        ),
        (
            "a.jsonl",
            json.dumps({"text": " ", "labels": ["law"], "id": SECRET}),
            {"id": "id"},
        ),
        ("a.jsonl", json.dumps({"text": {"a": SECRET}, "labels": ["law"]}), {}),
        ("a.jsonl", json.dumps({"text": "y", "labels": [{"a": SECRET}]}), {}),
        ("a.jsonl", '{"text": "' + SECRET, {}),
    ],
)
def test_messages_about_a_source_hold_no_text(xmtc, tmp_path, name, content, columns):
    config = tiny_runs.write_config(tmp_path)
    outcome = xmtc("prepare", config, source(tmp_path, name, content, **columns))
    assert outcome.code == 1
    assert "Error: " in outcome.err
    assert SECRET not in outcome.err + outcome.out
    assert "Smith" not in outcome.err + outcome.out


def test_messages_about_predictions_hold_no_text(xmtc, whole, tmp_path):
    table = pa.table({"doc_id": [SECRET], "labels": [[SECRET]], "scores": [[0.5]]})
    pq.write_table(table, tmp_path / "predictions.parquet")
    arguments = [
        "--predictions",
        tmp_path / "predictions.parquet",
        "--gold",
        whole.folder / "corpus",
    ]
    outcome = xmtc("evaluate", *arguments, "--output", tmp_path / "out")
    assert (outcome.code, SECRET in outcome.err) == (1, False)


def test_a_page_of_evidence_allows_no_script(xmtc, whole, tmp_path):
    assert (
        xmtc(
            "explain", whole.run / "model", "-t", "lawery", "-o", tmp_path / "page.html"
        ).code
        == 0
    )
    policy = re.search(
        r'http-equiv="Content-Security-Policy" content="([^"]+)"',
        (tmp_path / "page.html").read_text(),
    )
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "script" not in policy[1]


def test_the_folder_of_scores_is_a_table_for_everyone(xmtc, whole, tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"text": "lawery"}\n{"text": "fishing"}\nbroken\n'
    )
    assert (
        xmtc(
            "score",
            whole.run / "model",
            tmp_path / "a.jsonl",
            "-o",
            tmp_path / "scored",
        ).code
        == 0
    )
    assert len(pd.read_parquet(tmp_path / "scored")) == 2
    others = {path.name for path in (tmp_path / "scored").iterdir()} - {
        "part-00000-00000.parquet"
    }
    assert others == {"_job.json", "_manifest.json", "_rejected.parquet"}


def test_types_and_names_are_shipped():
    assert (Path(package.__file__).parent / "py.typed").is_file()
    code = "import sys, xmtc; print(set(xmtc.__all__) <= set(dir(xmtc)), 'torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        ).stdout
        == "True False\n"
    )


def test_a_token_that_ray_makes_is_for_its_owner_alone(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    from xmtc.cluster import connection

    def init(**_: object) -> None:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("x")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ray, "init", init)
    assert connection.join(None)
    assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
