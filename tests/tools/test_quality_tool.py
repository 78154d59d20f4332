"""`tools/study/quality.py` on a tiny data set: every system is measured, and compared with a tree in pairs."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quality

TOPICS = {
    "fish": "cod herring quota vessel",
    "milk": "dairy farm butter price",
    "steel": "iron tariff furnace import",
}


@pytest.fixture
def data(tmp_path):
    """A folder with a data set of three labels, whose documents repeat their label's words."""
    folder = tmp_path / "data" / "codiesp"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, size in ("train", 60), ("dev", 24):
        labels = [
            sorted(rng.choice(list(TOPICS), size=rng.integers(1, 3), replace=False))
            for _ in range(size)
        ]
        texts = [
            " ".join(rng.permutation(" ".join(TOPICS[one] for one in some).split()))
            for some in labels
        ]
        ids = [f"{split}{row}" for row in range(size)]
        pq.write_table(
            pa.table({"doc_id": ids, "text": texts, "labels": labels}),
            folder / f"{split}.parquet",
        )
    pq.write_table(
        pa.table({"label": list(TOPICS), "name": list(TOPICS.values())}),
        folder / "labels.parquet",
    )
    return tmp_path / "data"


def run(monkeypatch, capsys, *arguments: str) -> list[dict]:
    monkeypatch.setattr(sys, "argv", ["quality.py", *arguments])
    quality.main()
    return [
        json.loads(line)
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("{")
    ]


def test_every_system_is_measured_and_compared_with_the_tree(
    data, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("omikuji")
    cache = str(tmp_path / "cache")
    lines = run(
        monkeypatch, capsys, str(data), "--sets", "codiesp", "--trees", "parabel", "--cache", cache,
        "--resamples", "20",
    )  # fmt: skip
    found = {
        line["system"]: line for line in lines if "ndcg@5" in line and "system" in line
    }
    alone = ["ridge 0.1", "ridge 0.5", "word neighbours", "label text"]
    assert found.keys() == {
        "fused", *alone, *(f"without {name}" for name in alone), "without co-occurrence",
        "parabel", "parabel, calibrated", "fused with parabel",
    }  # fmt: skip
    assert found["ridge 0.1"]["p@1"] == 100
    differences = {line["difference"]: line for line in lines if "difference" in line}
    value, low, high = differences["fused − parabel"]["ndcg@5"]
    assert value == pytest.approx(
        found["fused"]["ndcg@5"] - found["parabel"]["ndcg@5"], abs=0.02
    )
    assert low <= value <= high


def test_states_of_other_documents_are_refused(data, tmp_path, monkeypatch, capsys):
    for split, size in ("train", 60), ("dev", 25):
        folder = tmp_path / "states" / f"states-{split}-256"
        folder.mkdir(parents=True)
        np.save(folder / "0000000.npy", np.zeros((size, 4), np.float16))
    with pytest.raises(SystemExit, match="not those of the case's documents"):
        run(
            monkeypatch, capsys, str(data), "--sets", "codiesp", "--trees", "none",
            "--states", str(tmp_path / "states"),
        )  # fmt: skip
