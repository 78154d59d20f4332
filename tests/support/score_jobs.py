"""Scoring jobs over a few rows, for tests of scoring."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from trial_model import TEXTS
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job

COLUMNS = text_columns(["text"], "id")
FP32 = Settings(top_k=5, bfloat16=False, block_rows=3, columns=COLUMNS)


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(
            json.dumps({"id": f"d{i}", "text": TEXTS[i % 4]}) + "\n"
            for i in range(rows)
        )
    )
    return path


def score(model, source, output, settings=FP32, **options):
    job = make_job(model, [str(source)], output, settings)
    return score_local(job, device="cpu", **options)


def read_output(output):
    manifest = json.loads((output / "_manifest.json").read_text())
    return pa.concat_tables(
        [pq.read_table(output / part["path"]) for part in manifest["parts"]]
    )


def contents(output):
    return {path.name: path.read_bytes() for path in output.glob("*.parquet")}
