"""Play a year of a model in use, and compare what its reports find with what was planted.

    python tools/check/a_year.py GND_TIB CLINICAL [--folder DIR] [--train 6000] [--stream 2000]

GND_TIB is a folder with train, dev and labels.parquet; CLINICAL is a Parquet file with a column `text`. A model without
an encoder is trained on a slice, scores held-out documents, and is served; 32 clients ask it from then on to the end.
Two simulated people see its labels over HTTP: they keep what gold says, but err with a known rate. Then a new version
of the vocabulary is applied, texts of other kinds come, a damaged version is offered, and a second model is trained
with the annotations. Each version answers under full load, and the first at the end again.

The reports have to find: the acceptance that gold and the rate of errors give; this rate, from two people who judge the
same suggestions; what people with this rate accept of all documents, from an audited sample; every change of the
vocabulary; drift of German and of clinical texts, but not of held-out ones; and that the second model agrees more with
the people on the documents that they taught it. No request may fail, every answer has to name the version that was to
answer, and memory has to stay as it was. At the end, a server just started and the one that was used take turns: other
programs slow both, and a year may slow neither. Gold labels of the held-out documents come from dev.

Prints JSON lines {"name", "planted", "found", "holds"}; the exit status is 1 if one does not hold.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import requests
import yaml

from xmtc.data.languages import languages_of
from year_clients import CLIENTS, Clients

ERROR, NEAR, BAR, AUDIT, SHOWN = 0.1, 0.03, "expected_precision>=0.35", 300, 400
PEOPLE = {"anna": "token-of-anna-at-the-library", "ben": "token-of-ben-at-the-library"}
CLIENT = "token-of-the-other-programs"
XMTC = (sys.executable, "-c", "from xmtc.cli import main; main()")
CHANGES = {
    "renamed": 40,
    "gone": 15,
    "deprecated": 10,
    "replaced": 15,
    "merged": 10,
    "split": 5,
    "new": 20,
}
WINDOW_S, SLOWER, LARGER, ROUNDS, TURNS, SWITCH_MS = 15.0, 1.5, 1.1, 3, 12, 5000
outcomes: list[bool] = []
Rows = Sequence[Mapping[str, Any]]
Gold = Mapping[str, Mapping[str, Any]]


def main() -> None:
    """Play the year."""
    arguments = parse()
    folder, started_s = arguments.folder.absolute(), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    source = slices(arguments, folder)
    planted = vocabularies(arguments.data, folder)
    model = train(folder, "first", [folder / "train.parquet"])
    shutil.rmtree(folder / "models", ignore_errors=True)
    published(folder, model)
    (folder / "models/gnd/current").write_text("first\n")
    gold = {row["doc_id"]: row for row in source.to_pylist()}
    with served(folder) as (server, process):
        documents = [
            {name: row[name] for name in ("title", "text")} for row in gold.values()
        ]
        clients = Clients(server, CLIENT, documents, process)
        try:
            year(folder, model, gold, planted, clients)
        finally:
            clients.stop()
    print(
        json.dumps(
            {
                "name": "all",
                "seconds": round(time.monotonic() - started_s),
                "holds": all(outcomes),
            }
        )
    )
    sys.exit(not all(outcomes))


def year(
    folder: Path,
    model: Path,
    gold: Gold,
    planted: Mapping[str, set[str]],
    clients: Clients,
) -> None:
    """What happens while the model is in use."""
    clients.window("first", WINDOW_S)
    xmtc(
        "score",
        model,
        folder / "stream.parquet",
        "-o",
        folder / "scored",
        *("--threshold", "tuned", "--release", BAR, "--overwrite"),
    )
    parts = sorted((folder / "scored").glob("part-*"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    release(rows, gold)
    people(folder, clients.place, rows[:SHOWN], gold)
    audited(folder, model, rows, gold)
    changed = vocabulary(folder, model, planted)
    clients.switch("changed")
    clients.window("changed", WINDOW_S)
    drift(folder, changed)
    damaged(folder, clients)
    newer = second(folder, changed)
    published(folder, newer, "second")
    for _ in range(ROUNDS):
        for version in ("second", "changed", "first"):
            clients.switch(version)
            clients.window(version, WINDOW_S / 3)
    beside_a_fresh_one(folder, clients)
    clients.stop()
    load(clients, planted)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="GND_TIB")
    parser.add_argument("clinical", type=Path, metavar="CLINICAL")
    parser.add_argument("--folder", type=Path, default=Path("a_year"))
    parser.add_argument("--train", type=int, default=6000)
    parser.add_argument("--stream", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.stream < 2 * AUDIT:
        parser.error(
            f"--stream {arguments.stream}: give at least {2 * AUDIT}, twice the documents that are audited"
        )
    return arguments


def say(name: str, planted: object, found: object, *, holds: bool) -> None:
    """Print what was found beside what was planted."""
    outcomes.append(holds)
    line = {"name": name, "planted": planted, "found": found, "holds": holds}
    print(json.dumps(line, ensure_ascii=False), flush=True)


def xmtc(*words: object) -> str:
    """Run a command of xmtc."""
    done = subprocess.run(
        [*XMTC, *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"xmtc {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr[-2000:]}"
        )
    return done.stdout


def slices(arguments: argparse.Namespace, folder: Path) -> pa.Table:
    """Cut train, dev, the stream of held-out documents, and texts of other kinds. Return the stream."""
    rng = np.random.default_rng(0)
    train, dev = (
        pq.read_table(arguments.data / f"{name}.parquet") for name in ("train", "dev")
    )
    train, dev = (
        train.take(rng.permutation(len(train))),
        dev.take(rng.permutation(len(dev))),
    )
    stream = dev.slice(1500, arguments.stream)
    rest = train.slice(arguments.train, 6000)
    german = [
        place
        for place, text in enumerate(rest["text"].to_pylist())
        if languages_of([text])["de"]
    ]
    pq.write_table(train.slice(0, arguments.train), folder / "train.parquet")
    pq.write_table(dev.slice(0, 1500), folder / "dev.parquet")
    pq.write_table(stream, folder / "stream.parquet")
    pq.write_table(rest.take(german), folder / "german.parquet")
    clinical = pq.read_table(arguments.clinical, columns=["doc_id", "text"])
    pq.write_table(
        clinical.append_column("title", pa.array([""] * len(clinical))),
        folder / "clinical.parquet",
    )
    return stream


def vocabularies(data: Path, folder: Path) -> dict[str, set[str]]:
    """Write the vocabulary as SKOS, and a later version. Return which labels the latter changes, by kind."""
    given = {
        name: pq.read_table(folder / f"{name}.parquet")["labels"].to_pylist()
        for name in ("train", "dev", "stream")
    }
    used = {
        label
        for documents in given.values()
        for labels in documents
        for label in labels
    }
    table = pq.read_table(data / "labels.parquet").to_pylist()
    names = {row["label"]: row["name"] for row in table if row["label"] in used}
    counts = Counter(label for labels in given["train"] for label in labels)
    often = sorted(
        label for label, count in counts.items() if count >= 3 and label in names
    )
    drawn = np.random.default_rng(1).permutation(often).tolist()
    planted = {
        kind: {drawn.pop() for _ in range(count)}
        for kind, count in CHANGES.items()
        if kind != "new"
    }
    ends = {label: [f"{label}-a"] for label in planted["replaced"]}
    ends |= {label: [drawn.pop()] for label in sorted(planted["merged"])}
    ends |= {label: [f"{label}-b", f"{label}-c"] for label in planted["split"]}
    # what replaces one label alone is no news; each part of a split one is
    parts = {part for label in planted["split"] for part in ends[label]}
    planted["new"] = {
        f"gnd:of-next-year-{number}" for number in range(CHANGES["new"])
    } | parts
    skos(folder / "vocabulary_1.ttl", "2025", names, {})
    later = {
        label: name for label, name in names.items() if label not in planted["gone"]
    }
    later |= {label: f"{names[label]} (as of 2026)" for label in planted["renamed"]}
    later |= {
        end: f"{names[label]} ({end[-1]})"
        for label, all_ends in ends.items()
        for end in all_ends
        if end not in names
    }
    later |= {label: f"Concept {label}" for label in planted["new"] - parts}
    ends |= {label: [] for label in planted["deprecated"]}
    skos(folder / "vocabulary_2.ttl", "2026", later, ends)
    return planted


def skos(
    path: Path,
    version: str,
    names: Mapping[str, str],
    ends: Mapping[str, Sequence[str]],
) -> None:
    """Write a vocabulary: names by label, and for deprecated labels what replaces them."""
    lines = [
        f"@prefix {name}: <http://www.w3.org/{place}> ."
        for name, place in (("skos", "2004/02/skos/core#"), ("owl", "2002/07/owl#"))
    ]
    lines += ["@prefix dct: <http://purl.org/dc/terms/> ."]
    lines += [f'<gnd:> a skos:ConceptScheme ; owl:versionInfo "{version}" .']
    for label, name in names.items():
        more = "" if label not in ends else " ; owl:deprecated true"
        more += "".join(f" ; dct:isReplacedBy <{end}>" for end in ends.get(label, ()))
        lines.append(
            f"<{label}> a skos:Concept ; skos:prefLabel {json.dumps(name, ensure_ascii=False)}@en{more} ."
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def train(folder: Path, name: str, files: Sequence[Path]) -> Path:
    """Train a model without an encoder."""
    source = {
        "kind": "parquet",
        "files": {
            "train": [str(file) for file in files],
            "dev": str(folder / "dev.parquet"),
        },
    }
    source |= {"columns": {"id": "doc_id", "text": ["title", "text"]}}
    source |= {"labels": {"path": str(folder / "vocabulary_1.ttl")}}
    linear = {
        "kind": "linear",
        "fields": {"title": 1, "text": 2},
        "most_terms": 5000,
        "penalty": 0.3,
        "prune": 0.1,
    }
    config = {
        "name": name,
        "data": {
            "source": source,
            "corpus": str(folder / f"corpus_{name}"),
            "max_length": 192,
        },
        "model": {
            "encoder": {"kind": "hugging_face", "name": "packaged:all-MiniLM-L6-v2"},
            "head": {"kind": "none"},
            "scorers": [linear, {"kind": "word_neighbours"}],
        },
        "distributed": {"workers": 0},
        "track": {"directory": str(folder / "runs")},
    }
    text, place = yaml.safe_dump(config), folder / f"{name}.yaml"
    same = (
        place.exists() and place.read_text() == text
    )  # then finished stages are skipped
    place.write_text(text)
    xmtc("train", place, *([] if same else ["--overwrite"]))
    return folder / "runs" / name / "model"


def published(folder: Path, model: Path, version: str = "first") -> None:
    """Put a model where the server finds it."""
    shutil.copytree(model, folder / "models/gnd" / version)


@contextmanager
def served(
    folder: Path, name: str = "server", people: str = "people"
) -> Iterator[tuple[str, psutil.Process]]:
    """Serve the versions: the address, and the process."""
    everybody = PEOPLE | {"programs": CLIENT}
    (folder / "tokens").write_text(
        "".join(f"{name} {token}\n" for name, token in everybody.items())
    )
    annotations = folder / f"{people}.jsonl"
    annotations.unlink(missing_ok=True)
    options = [
        "--models",
        folder / "models",
        "--annotations",
        annotations,
        "--port",
        "0",
    ]
    command = [
        *XMTC,
        "serve",
        *map(str, [*options, "--token-file", folder / "tokens", f"release={BAR}"]),
    ]
    log = folder / f"{name}.log"
    with (
        log.open("w") as said,
        subprocess.Popen(command, stderr=said, start_new_session=True) as server,
    ):
        try:
            while "API at" not in log.read_text():
                if server.poll() is not None:
                    sys.exit(f"the server did not start: {log.read_text()}")
                time.sleep(0.2)
            yield (
                log.read_text().split("API at ")[1].split("/docs")[0],
                psutil.Process(server.pid),
            )
        finally:
            server.terminate()


def release(rows: Rows, gold: Gold) -> None:
    """Check that released documents are as good as expected, and better than those held."""
    quality: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        if row["labels"]:
            right = len(set(row["labels"]) & set(gold[row["doc_id"]]["labels"]))
            quality[row["release"]].append(right / len(row["labels"]))
    expected, released = (
        float(np.mean([row["expected_precision"] for row in rows if row["release"]])),
        quality[True],
    )
    (mean, error), held = mean_and_error(released), float(np.mean(quality[False]))
    found = {
        "released": len(released),
        "precision": f"{mean:.3f} ± {error:.3f}",
        "precision of others": round(held, 3),
    }
    holds = abs(mean - expected) < error + NEAR and mean > held
    say(f"precision of documents with {BAR}", round(expected, 3), found, holds=holds)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Compute a mean, and half of its 95 % interval."""
    return float(np.mean(values)), 1.96 * float(np.std(values, ddof=1)) / len(
        values
    ) ** 0.5


def decide(label: str, given: Sequence[str], rng: np.random.Generator) -> bool:
    """Decide as gold does, but for errors."""
    return (label in given) != (rng.random() < ERROR)


def people(folder: Path, place: str, rows: Rows, gold: Gold) -> None:
    """Let two people annotate documents over HTTP, and look for their errors in the report."""
    differ = [
        annotate(place, token, rows, gold, seed)
        for seed, token in enumerate(PEOPLE.values())
    ]
    say(
        "documents with other labels over HTTP than in the table",
        [0, 0],
        differ,
        holds=not any(differ),
    )
    xmtc("annotations", "report", folder / "people.jsonl", "-o", folder / "people.html")
    table = pq.read_table(folder / "people_tables" / "acceptance.parquet").to_pylist()[
        0
    ]
    predicted = [
        label in gold[row["doc_id"]]["labels"]
        for row in rows
        for label in row["labels"]
    ]
    planted = float(np.mean([(1 - ERROR) if right else ERROR for right in predicted]))
    between("acceptance of predicted labels", planted, table["acceptance, %"])
    agreement = pq.read_table(
        folder / "people_tables" / "agreement.parquet"
    ).to_pylist()[0]
    equal = ends_of(agreement["equal decisions, %"])
    high, low = (
        (1 - (2 * end - 1) ** 0.5) / 2 for end in equal
    )  # equal: both right, or both wrong
    found = f"[{100 * low:.1f}, {100 * high:.1f}] from {agreement['equal decisions, %']} equal decisions"
    say("errors of two people, %", 100 * ERROR, found, holds=low <= ERROR <= high)


def annotate(place: str, token: str, rows: Rows, gold: Gold, seed: int) -> int:
    """Annotate as one person, who judges every label shown; count documents with other labels than in the table."""
    rng, session, differ = np.random.default_rng(seed), requests.Session(), 0
    session.headers["Authorization"] = f"Bearer {token}"
    for row in rows:
        document = gold[row["doc_id"]]
        fields = {name: document[name] for name in ("title", "text")}
        shown = session.post(
            f"{place}/predict", json={"texts": [fields]}, timeout=60
        ).json()
        suggested = [
            {key: one[key] for key in ("label", "score", "predicted")}
            for one in shown["predictions"][0]
        ]
        chosen = {one["label"] for one in suggested if one["predicted"]}
        differ += chosen != set(row["labels"]) or shown["release"] != [row["release"]]
        labels = [
            one["label"]
            for one in suggested
            if decide(one["label"], document["labels"], rng)
        ]
        review = {
            "suggested": suggested,
            "rejected": [
                one["label"] for one in suggested if one["label"] not in labels
            ],
            "seconds": 5.0,
            "version": shown["version"],
        }
        body = {
            "id": row["doc_id"],
            "text": "\n".join(fields.values()),
            "labels": labels,
            "review": review,
        }
        session.post(f"{place}/annotations", json=body, timeout=60).raise_for_status()
    return differ


def between(name: str, planted: float, found: str) -> None:
    """Check that a value lies in the interval of a cell, in percent."""
    low, high = ends_of(found)
    say(
        name,
        round(100 * planted, 1),
        found,
        holds=low - 0.0005 <= planted <= high + 0.0005,
    )


def ends_of(cell: str) -> list[float]:
    """Read the interval of a cell such as `12.3 [11.0, 13.5]`, in percent."""
    return [float(end) / 100 for end in cell.partition("[")[2].rstrip("]").split(", ")]


def auditor(doc_id: str, label: str, given: Sequence[str]) -> bool:
    """Decide as gold does, but for errors; the same each time that this document is shown."""
    return (label in given) != (
        zlib.crc32(f"{doc_id} {label}".encode()) < ERROR * 2**32
    )


def audited(folder: Path, model: Path, rows: Rows, gold: Gold) -> None:
    """Audit a sample by a person with errors who adds what is missing, and compare with what they give in all."""
    (folder / "sample.jsonl").unlink(missing_ok=True)
    options = ("--model", model, "--size", AUDIT, "-o", folder / "sample.jsonl")
    xmtc("annotations", "sample", folder / "scored", *options)
    lines = []
    for line in (folder / "sample.jsonl").read_text().splitlines():
        drawn = json.loads(line)
        given = gold[drawn["id"]]["labels"]
        labels = [
            label for label in drawn["labels"] if auditor(drawn["id"], label, given)
        ]
        missing = [label for label in given if label not in drawn["labels"]]
        lines.append({"id": drawn["id"], "text": "", "labels": labels + missing})
    (folder / "audit.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    xmtc(
        "annotations",
        "audit",
        folder / "sample.jsonl",
        folder / "audit.jsonl",
        "-o",
        folder / "audit.html",
    )
    found = pq.read_table(folder / "audit_tables" / "audit.parquet").to_pylist()[0]
    of_rows = [
        (row["doc_id"], label, gold[row["doc_id"]]["labels"])
        for row in rows
        for label in row["labels"]
    ]
    predicted, accepted = len(of_rows), sum(auditor(*one) for one in of_rows)
    right = sum(
        len(set(row["labels"]) & set(gold[row["doc_id"]]["labels"])) for row in rows
    )
    there = sum(len(set(gold[row["doc_id"]]["labels"])) for row in rows)
    for name, whole in (("precision", predicted), ("recall", accepted + there - right)):
        between(
            f"audited {name} of all documents", accepted / whole, found[f"{name}, %"]
        )


def vocabulary(folder: Path, model: Path, planted: Mapping[str, set[str]]) -> Path:
    """List and apply the changes of the vocabulary. Return the changed model."""
    before, found = (
        differences(folder, model, f"vocabulary_{number}.ttl") for number in (1, 2)
    )
    news = {kind: labels - before.get(kind, set()) for kind, labels in found.items()}
    say(
        "changes of the vocabulary",
        counted(planted),
        counted(news),
        holds=news == dict(planted),
    )
    changed = folder / "changed"
    xmtc("labels", "apply", model, folder / "changes.jsonl", "-o", changed)
    left = differences(folder, changed, "vocabulary_2.ttl")
    left["new"] -= before["new"]
    expected = {kind: planted[kind] for kind in ("new", "split")}
    say(
        "changes that need training",
        counted(expected),
        counted(left),
        holds=left == expected,
    )
    published(folder, changed, "changed")
    return changed


def differences(folder: Path, model: Path, vocabulary: str) -> dict[str, set[str]]:
    """Ask which labels a vocabulary changes, by kind."""
    xmtc("labels", "diff", model, folder / vocabulary, "-o", folder / "changes.jsonl")
    found: dict[str, set[str]] = {}
    for line in (folder / "changes.jsonl").read_text().splitlines():
        change = json.loads(line)
        if change["kind"] != "version":
            found.setdefault(change["kind"], set()).add(change["label"])
    return found


def counted(kinds: Mapping[str, set[str]]) -> dict[str, int]:
    return {kind: len(labels) for kind, labels in sorted(kinds.items())}


def drift(folder: Path, model: Path) -> None:
    """Compare texts of three kinds with those of training."""
    for name, expected in (("stream", False), ("german", True), ("clinical", True)):
        out = ("--json", folder / f"{name}.json", "-o", folder / f"{name}.html")
        xmtc("drift", model, folder / f"{name}.parquet", *out)
        found = json.loads((folder / f"{name}.json").read_text())
        drifting = [one for one, change in found["changes"].items() if change["drift"]]
        say(
            f"drift of {name} texts",
            expected,
            drifting,
            holds=bool(drifting) == expected,
        )


def damaged(folder: Path, clients: Clients) -> None:
    """Offer a version with a damaged file."""
    place = shutil.copytree(folder / "changed", folder / "models/gnd/damaged")
    largest = max(
        (path for path in place.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    with largest.open("r+b") as content:
        content.seek(largest.stat().st_size // 2)
        content.write(bytes(16))
    answer = clients.ask_for("damaged")
    say(
        "a damaged version",
        409,
        [answer.status_code, answer.json()["detail"]],
        holds=answer.status_code == 409,
    )


def second(folder: Path, model: Path) -> Path:
    """Train a second model with a person's annotations, apply the vocabulary, and compare it with the first."""
    lines = [
        json.loads(line) for line in (folder / "people.jsonl").read_text().splitlines()
    ]
    anna = [line for line in lines if line["by"] == "anna"]
    titles, texts = zip(*(line["text"].split("\n", 1) for line in anna), strict=True)
    ids, labels = [line["id"] for line in anna], [line["labels"] for line in anna]
    pq.write_table(
        pa.table({"doc_id": ids, "title": titles, "text": texts, "labels": labels}),
        folder / "more.parquet",
    )
    trained = train(
        folder, "second", [folder / "train.parquet", folder / "more.parquet"]
    )
    newer = folder / "second"
    differences(folder, trained, "vocabulary_2.ttl")
    xmtc("labels", "apply", trained, folder / "changes.jsonl", "-o", newer)
    flips = flipped(folder, model, newer, "more", "people")
    found = {}
    for kind, not_given in (("gained", "did not "), ("lost", "did not")):
        right, wrong = (
            int(flips[name].replace(",", ""))
            for name in (f"{kind}: people gave it", not_given)
        )
        found[kind] = [right, right + wrong]
    better = (
        found["gained"][0] * found["lost"][1] > found["lost"][0] * found["gained"][1]
    )
    name = "labels that people gave among those gained and lost, on documents that the second model trained on"
    say(name, "a larger share of those gained", found, holds=better)
    stream, taught = pq.read_table(folder / "stream.parquet"), set(ids)
    others = pa.array([one not in taught for one in stream["doc_id"].to_pylist()])
    pq.write_table(stream.filter(others), folder / "rest.parquet")
    rest = flipped(folder, model, newer, "rest", "audit")
    cells = [each["flipped, %"] for each in (rest, flips)]
    fewer = ends_of(cells[0])[1] < ends_of(cells[1])[0]
    say(
        "decisions that flip on documents of no training, and on those, %",
        "fewer, more",
        cells,
        holds=fewer,
    )
    said = xmtc("diff", model, model, folder / "dev.parquet", "--at-most", "0%")
    share = said.rpartition("flipped: ")[2].split("%")[0]
    say("decisions that the same model flips, %", 0.0, share, holds=float(share) == 0)
    return newer


def flipped(
    folder: Path, old: Path, new: Path, table: str, annotations: str
) -> dict[str, str]:
    """Compare two models on documents that people judged, over all labels."""
    judged = ("--annotations", folder / f"{annotations}.jsonl")
    xmtc(
        "diff",
        old,
        new,
        folder / f"{table}.parquet",
        *judged,
        "-o",
        folder / f"diff_{table}.html",
    )
    return pq.read_table(
        folder / f"diff_{table}_tables" / "flips_bins.parquet"
    ).to_pylist()[0]


def beside_a_fresh_one(folder: Path, clients: Clients) -> None:
    """Give full load to a server just started, and to the one that was in use, in turns."""
    with served(folder, "fresh", "of_nobody") as (server, process):
        fresh = Clients(server, CLIENT, clients.documents, process)
        try:
            for turn in range(TURNS):
                for one in (fresh, clients) if turn % 2 else (clients, fresh):
                    one.window("first", WINDOW_S / 3)
        finally:
            fresh.stop()
    for name, key, most in (
        ("99th percentile, ms", "p99_ms", SLOWER),
        ("processor ms an answer", "cpu_ms", LARGER),
    ):
        new, used = (
            [getattr(one, key) for one in some.windows[-TURNS:]]
            for some in (fresh, clients)
        )
        mean, reach = mean_and_error(np.log(np.array(used) / new).tolist())
        ratio, low, high = (
            round(float(np.exp(end)), 2) for end in (mean, mean - reach, mean + reach)
        )
        found = {"ratio": f"{ratio} [{low}, {high}]"}
        found |= {"in use": f"{np.median(used):.1f}", "fresh": f"{np.median(new):.1f}"}
        say(
            f"{name}, beside a server just started",
            f"at most {most} times",
            found,
            holds=low <= most,
        )


def load(clients: Clients, planted: Mapping[str, set[str]]) -> None:
    """Check what the clients got from start to end."""
    answers = clients.answers
    failed = Counter(str(one.status) for one in answers if one.status != 200)
    say(
        f"failed requests of {len(answers):,} by {CLIENTS} clients, {len(clients.switching_ms)} switches",
        0,
        failed,
        holds=not failed,
    )
    unnamed = sum(not all(one.about.values()) for one in answers)
    say(
        "answers without model, version, vocabulary or rule",
        0,
        unnamed,
        holds=unnamed == 0,
    )
    wrong = clients.wrong()
    say("answers of another version than asked for", 0, wrong, holds=wrong == 0)
    old = {
        label
        for kind in ("gone", "deprecated", "replaced", "merged")
        for label in planted[kind]
    }
    given = {version: len(labels & old) for version, labels in clients.labels.items()}
    say(
        "labels of the old vocabulary in answers",
        {"first": "some", "changed": 0, "second": 0},
        given,
        holds=given["first"] > 0 and given["changed"] == given["second"] == 0,
    )
    say(
        "slowest answer of each switch, ms",
        f"less than {SWITCH_MS}",
        [round(one) for one in clients.switching_ms],
        holds=max(clients.switching_ms) < SWITCH_MS,
    )
    sizes = [round(one.memory_mib) for one in clients.windows]
    say(
        "resident MiB",
        "at most 1.1 times that after three versions",
        sizes,
        holds=sizes[-1] <= LARGER * sizes[4],
    )


if __name__ == "__main__":
    main()
