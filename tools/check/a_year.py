"""Play a year of a model in use, and compare what its reports find with what was planted.

    python tools/check/a_year.py GND_TIB CLINICAL [--folder DIR] [--train 8000] [--stream 2000]

GND_TIB is a folder with train, dev and labels.parquet; CLINICAL is a Parquet file with a column `text`. A model without
an encoder is trained on a slice and scores held-out documents, which are released or held. Two simulated people see its
labels over HTTP: they keep what gold says, but err with a known rate. The reports then have to find: the acceptance
that gold and the rate of errors give; the agreement of two people with these errors; precision and recall of all
documents, from an audited sample; drift of German and of clinical texts, but not of held-out ones; and the decisions
that a second model, trained with the annotations, changes. Gold labels of the held-out documents come from dev.

Prints JSON lines {"name", "planted", "found", "holds"}; the exit status is 1 if one does not hold.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import requests
import yaml

from xmtc.data.languages import languages_of

ERROR, BAR, AUDIT, SHOWN = 0.1, "expected_precision>=0.35", 300, 400
PEOPLE = {"anna": "token-of-anna-at-the-library", "ben": "token-of-ben-at-the-library"}
XMTC = (sys.executable, "-c", "from xmtc.cli import main; main()")
outcomes: list[bool] = []


def main() -> None:
    """Play the year."""
    arguments = parse()
    folder, started_s = arguments.folder.absolute(), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    source = slices(arguments, folder)
    model = train(folder, "first", arguments.data, [folder / "train.parquet"])
    gold = {row["doc_id"]: row for row in source.to_pylist()}
    scored = folder / "scored"
    xmtc(
        "score", model, folder / "stream.parquet", "-o", scored, "--threshold", "tuned", "--release", BAR, "--overwrite"
    )
    rows = [row for part in sorted(scored.glob("part-*")) for row in pq.read_table(part).to_pylist()]
    release(rows, gold)
    people(folder, model, rows[:SHOWN], gold)
    audited(folder, model, rows, gold)
    for name, expected in (("stream", False), ("german", True), ("clinical", True)):
        xmtc(
            "drift", model, folder / f"{name}.parquet", "--json", folder / f"{name}.json", "-o", folder / f"{name}.html"
        )
        found = json.loads((folder / f"{name}.json").read_text())
        drifting = [one for one, change in found["changes"].items() if change["drift"]]
        say(f"drift of {name} texts", expected, drifting, holds=bool(drifting) == expected)
    second(folder, model, arguments.data)
    print(json.dumps({"name": "all", "seconds": round(time.monotonic() - started_s), "holds": all(outcomes)}))
    sys.exit(not all(outcomes))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="GND_TIB")
    parser.add_argument("clinical", type=Path, metavar="CLINICAL")
    parser.add_argument("--folder", type=Path, default=Path("a_year"))
    parser.add_argument("--train", type=int, default=8000)
    parser.add_argument("--stream", type=int, default=2000)
    return parser.parse_args()


def say(name: str, planted: object, found: object, *, holds: bool) -> None:
    """Print what was found beside what was planted."""
    outcomes.append(holds)
    print(json.dumps({"name": name, "planted": planted, "found": found, "holds": holds}), flush=True)


def xmtc(*words: object) -> str:
    """Run a command of xmtc."""
    done = subprocess.run([*XMTC, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"xmtc {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def slices(arguments: argparse.Namespace, folder: Path) -> pa.Table:
    """Cut train, dev, the stream of held-out documents, and texts of other kinds. Return the stream."""
    rng = np.random.default_rng(0)
    train, dev = (pq.read_table(arguments.data / f"{name}.parquet") for name in ("train", "dev"))
    train, dev = train.take(rng.permutation(len(train))), dev.take(rng.permutation(len(dev)))
    stream = dev.slice(1500, arguments.stream)
    rest = train.slice(arguments.train)
    german = [place for place, text in enumerate(rest["text"].to_pylist()) if languages_of([text])["de"]]
    pq.write_table(train.slice(0, arguments.train), folder / "train.parquet")
    pq.write_table(dev.slice(0, 1500), folder / "dev.parquet")
    pq.write_table(stream, folder / "stream.parquet")
    pq.write_table(rest.take(german), folder / "german.parquet")
    clinical = pq.read_table(arguments.clinical, columns=["doc_id", "text"])
    pq.write_table(clinical.append_column("title", pa.array([""] * len(clinical))), folder / "clinical.parquet")
    return stream


def train(folder: Path, name: str, data: Path, files: Sequence[Path]) -> Path:
    """Train a model without an encoder."""
    source = {"kind": "parquet", "files": {"train": [str(file) for file in files], "dev": str(folder / "dev.parquet")}}
    source |= {"columns": {"id": "doc_id", "text": ["title", "text"]}, "labels": {"path": str(data / "labels.parquet")}}
    linear = {"kind": "linear", "fields": {"title": 1, "text": 2}, "most_terms": 5000, "penalties": [0.3], "prune": 0.1}
    config = {
        "name": name,
        "data": {"source": source, "corpus": str(folder / f"corpus_{name}"), "max_length": 192},
        "model": {
            "encoder": {"kind": "hugging_face", "name": "packaged:all-MiniLM-L6-v2"},
            "head": {"kind": "none"},
            "scorers": [linear, {"kind": "word_neighbours"}],
        },
        "distributed": {"workers": 0},
        "track": {"directory": str(folder / "runs")},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    xmtc("train", folder / f"{name}.yaml", "--overwrite")
    return folder / "runs" / name / "model"


def release(rows: Sequence[Mapping[str, Any]], gold: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that released documents are as good as expected, and better than those held."""
    quality: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        if row["labels"]:
            right = len(set(row["labels"]) & set(gold[row["doc_id"]]["labels"]))
            quality[row["release"]].append(right / len(row["labels"]))
    expected = float(np.mean([row["expected_precision"] for row in rows if row["release"]]))
    found = {"released": len(quality[True]), **{str(key): round(float(np.mean(v)), 3) for key, v in quality.items()}}
    say(
        f"precision of documents with {BAR}",
        round(expected, 3),
        found,
        holds=bool(abs(np.mean(quality[True]) - expected) < 0.1),
    )


def decide(label: str, given: Sequence[str], rng: np.random.Generator) -> bool:
    """Decide as gold does, but for errors."""
    return (label in given) != (rng.random() < ERROR)


def people(folder: Path, model: Path, rows: Sequence[Mapping[str, Any]], gold: Mapping[str, Mapping[str, Any]]) -> None:
    """Let two people annotate documents over HTTP, and look for their errors in the report."""
    (folder / "tokens").write_text("".join(f"{name} {token}\n" for name, token in PEOPLE.items()))
    annotations = folder / "people.jsonl"
    annotations.unlink(missing_ok=True)
    port = 8123
    command = ["serve", model, "--annotations", annotations, "--token-file", folder / "tokens", "--port", port]
    with subprocess.Popen([*XMTC, *map(str, command)], stderr=subprocess.DEVNULL) as server:
        place, wait_s = f"http://127.0.0.1:{port}", time.monotonic() + 120
        try:
            while time.monotonic() < wait_s:
                try:
                    if requests.get(f"{place}/ready", timeout=5).ok:
                        break
                except requests.ConnectionError:
                    time.sleep(0.5)
            for seed, token in enumerate(PEOPLE.values()):
                annotate(place, {"Authorization": f"Bearer {token}"}, rows, gold, np.random.default_rng(seed))
        finally:
            server.terminate()
    xmtc("annotations", "report", annotations, "-o", folder / "people.html")
    table = pq.read_table(folder / "people_tables" / "acceptance.parquet").to_pylist()[0]
    predicted = [label in gold[row["doc_id"]]["labels"] for row in rows for label in row["labels"]]
    planted = float(np.mean([(1 - ERROR) if right else ERROR for right in predicted]))
    between("acceptance of predicted labels", planted, table["acceptance, %"])
    agreement = pq.read_table(folder / "people_tables" / "agreement.parquet").to_pylist()[0]
    between("equal decisions of two people", 1 - 2 * ERROR * (1 - ERROR), agreement["equal decisions, %"])


def annotate(
    place: str,
    headers: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    gold: Mapping[str, Mapping[str, Any]],
    rng: np.random.Generator,
) -> None:
    """Annotate documents as one person, who judges every label shown."""
    for row in rows:
        document = gold[row["doc_id"]]
        text = f"{document['title']}\n{document['text']}"
        shown = requests.post(f"{place}/predict", json={"texts": [text]}, headers=headers, timeout=60).json()
        suggested = [{key: one[key] for key in ("label", "score", "predicted")} for one in shown["predictions"][0]]
        labels = [one["label"] for one in suggested if decide(one["label"], document["labels"], rng)]
        review = {"suggested": suggested, "seconds": 5.0, "version": shown["version"]}
        body = {"id": row["doc_id"], "text": text, "labels": labels, "review": review}
        requests.post(f"{place}/annotations", json=body, headers=headers, timeout=60).raise_for_status()


def between(name: str, planted: float, found: str) -> None:
    """Check that a value lies in the interval of a cell such as `12.3 [11.0, 13.5]`, in percent."""
    low, high = (float(end) for end in found.partition("[")[2].rstrip("]").split(", "))
    say(name, round(100 * planted, 1), found, holds=low - 0.05 <= 100 * planted <= high + 0.05)


def audited(
    folder: Path, model: Path, rows: Sequence[Mapping[str, Any]], gold: Mapping[str, Mapping[str, Any]]
) -> None:
    """Audit a sample by people without errors, and compare with gold of all documents."""
    (folder / "sample.jsonl").unlink(missing_ok=True)
    options = ("--model", model, "--size", AUDIT, "-o", folder / "sample.jsonl")
    xmtc("annotations", "sample", folder / "scored", *options)
    sample = [json.loads(line)["id"] for line in (folder / "sample.jsonl").read_text().splitlines()]
    lines = [{"id": one, "text": "", "labels": list(gold[one]["labels"])} for one in sample]
    (folder / "audit.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    xmtc("annotations", "audit", folder / "sample.jsonl", folder / "audit.jsonl", "-o", folder / "audit.html")
    found = pq.read_table(folder / "audit_tables" / "audit.parquet").to_pylist()[0]
    right = sum(len(set(row["labels"]) & set(gold[row["doc_id"]]["labels"])) for row in rows)
    for name, whole in (
        ("precision", sum(len(row["labels"]) for row in rows)),
        ("recall", sum(len(set(gold[row["doc_id"]]["labels"])) for row in rows)),
    ):
        between(f"audited {name} of all documents", right / whole, found[f"{name}, %"])


def second(folder: Path, model: Path, data: Path) -> None:
    """Train a second model with the annotations, and compare it with the first."""
    lines = [json.loads(line) for line in (folder / "people.jsonl").read_text().splitlines()]
    anna = [line for line in lines if line["by"] == "anna"]
    titles, texts = zip(*(line["text"].split("\n", 1) for line in anna), strict=True)
    columns = {
        "doc_id": [line["id"] for line in anna],
        "title": titles,
        "text": texts,
        "labels": [x["labels"] for x in anna],
    }
    pq.write_table(pa.table(columns), folder / "more.parquet")
    other = train(folder, "second", data, [folder / "train.parquet", folder / "more.parquet"])
    said = xmtc("diff", model, other, folder / "dev.parquet", "-o", folder / "diff.html")
    share = float(said.rpartition("flipped: ")[2].split("%")[0])
    say("decisions that a second model flips, %", "more than 0", share, holds=0 < share < 100)
    said = xmtc("diff", model, model, folder / "dev.parquet", "--at-most", "0%")
    say(
        "decisions that the same model flips, %",
        0.0,
        said.rpartition("flipped: ")[2].split("%")[0],
        holds="0.00%" in said,
    )


if __name__ == "__main__":
    main()
