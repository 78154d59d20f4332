"""Exactly once: score a corpus, kill -9 the scoring process again and again, and count what is there in the end.

    python tools/kill_scoring.py MODEL INPUT... --output DIR --id doc_id [--text title --text text] [--kills 5]

INPUT are Parquet files. After each kill the same command starts again; the last attempt may finish. Then: as many
documents as the input has, the same ids, each once, every part as its checksum says, and, unless --once, the same
bytes as an undisturbed job writes. JSON lines; the last is {"name", "ratio", "bar", "holds"}, the ratio being the share
of these checks that hold; exit status 1 where one does not.
"""

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

Json = dict[str, object]


def command(arguments: argparse.Namespace, output: Path) -> list[str]:
    words = [sys.executable, "-c", "from xmtc.cli import main; main()", "score", str(arguments.model)]
    words += [*map(str, arguments.input), "--output", str(output), "--id", arguments.id]
    words += ["--block-rows", str(arguments.block_rows), "--engine", arguments.engine]
    return words + [word for column in arguments.text for word in ("--text", column)]


def parts(output: Path) -> int:
    return len(list(output.glob("part-*.parquet")))


def attempt(words: list[str], output: Path, kill_after: int | None, delay_s: float) -> Json:
    """Run once; with `kill_after`, kill it `delay_s` after that many more parts are there."""
    began, before = time.monotonic(), parts(output)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while kill_after is not None and process.poll() is None and parts(output) < before + kill_after:
        time.sleep(0.02)
    if kill_after is not None and process.poll() is None:
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
    problem = process.communicate()[1].decode()
    if process.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"scoring failed: {problem.strip().splitlines()[-1]}")
    seconds = round(time.monotonic() - began, 1)
    return {"killed": process.returncode != 0, "parts_before": before, "parts_after": parts(output), "seconds": seconds}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(arguments: argparse.Namespace) -> dict[str, bool]:
    manifest = json.loads((arguments.output / "manifest.json").read_text())
    paths = [arguments.output / part["path"] for part in manifest["parts"]]
    wanted = [name for path in arguments.input for name in pq.read_table(path, columns=[arguments.id])[0].to_pylist()]
    found = [name for path in paths for name in pq.read_table(path, columns=["doc_id"])[0].to_pylist()]
    facts = {"documents": len(found), "distinct_ids": len(set(found)), "input_rows": len(wanted), "parts": len(paths)}
    print(json.dumps(facts | {"rejected": manifest["rejected"]}), flush=True)
    return {
        "as_many": len(found) + manifest["rejected"] == len(wanted) and manifest["documents"] == len(found),
        "same_ids": Counter(map(str, wanted)) == Counter(found) if not manifest["rejected"] else False,
        "each_once": len(set(found)) == len(found),
        "checksums": [sha256(path) for path in paths] == [part["sha256"] for part in manifest["parts"]],
        "nothing_else": {path.name for path in arguments.output.iterdir()}
        == {path.name for path in paths} | {"manifest.json", "job.json", "rejected.parquet"},
    }


def same_as_undisturbed(arguments: argparse.Namespace) -> bool:
    other = arguments.output.with_name(arguments.output.name + "_undisturbed")
    print(json.dumps({"undisturbed": attempt(command(arguments, other), other, None, 0.0)}), flush=True)
    both = [json.loads((folder / "manifest.json").read_text())["parts"] for folder in (arguments.output, other)]
    return both[0] == both[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("input", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--text", action="append", default=[])
    parser.add_argument("--engine", default="local")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--block-rows", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    rows = sum(pq.read_metadata(path).num_rows for path in arguments.input)
    most = max(1, rows // arguments.block_rows // (arguments.kills + 1))
    for number in range(arguments.kills):
        after, delay_s = random_.randint(1, most), random_.random()
        line = attempt(command(arguments, arguments.output), arguments.output, after, delay_s)
        print(json.dumps({"attempt": number, **line}), flush=True)
        if not line["killed"]:
            raise SystemExit("the job was done before the last kill: give a larger corpus or fewer kills")
    print(json.dumps({"last": attempt(command(arguments, arguments.output), arguments.output, None, 0.0)}), flush=True)
    checks = check(arguments)
    if not arguments.once:
        checks["same_bytes"] = same_as_undisturbed(arguments)
    print(json.dumps(checks))
    ratio = sum(checks.values()) / len(checks)
    print(json.dumps({"name": "kill_scoring", "ratio": round(ratio, 2), "bar": 1.0, "holds": ratio == 1}))
    return 0 if ratio == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
