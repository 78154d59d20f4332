"""Verify exactly-once scoring: score a corpus, kill the scoring processes (-9) at random moments, and check the output.

    python tools/check/kill_scoring.py MODEL INPUT... --output DIR --id doc_id [--text text] --kills local=5
    python tools/check/kill_scoring.py ... --kills local=4 ray=2 driver=4 actor=6 node=4 --block-rows 16

INPUT are Parquet files. MODEL, INPUT and the output may be at URIs; with --disks, every node then has a separate home,
and nodes share no files. The script kills the process of the local engine (local), a driver that started Ray (ray),
and, on a cluster of two nodes that it starts, the driver (driver), a scoring actor (actor), or a whole node, which a
new one replaces (node). All kills hit the same job. If a kill ends it, the same command starts again; the last attempt
may finish. The checks: the output has the documents and ids of the input, each once; every part matches its checksum;
there are no other files and no processes left; and, unless --once, the bytes equal those of an undisturbed local job.
Prints JSON lines; the last is {"name", "ratio", "bar", "holds"} with the share of checks that hold. The exit status is
1 if one fails.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from fsspec.core import url_to_fs

MODES = {
    "local": "local",
    "ray": "own ray",
    "driver": "cluster",
    "actor": "cluster",
    "node": "cluster",
}
PATIENCE_S = 300
NODE_STARTS = 8
Json = dict[str, object]


def say(line: Json) -> None:
    print(json.dumps(line), flush=True)


def files(output: str) -> dict[str, str]:
    """List the files at a path or URI by name, without hidden ones."""
    fs, root = url_to_fs(output)
    fs.invalidate_cache()
    found = fs.find(root) if fs.exists(root) else []
    names = {path.removeprefix(root).lstrip("/"): path for path in found}
    return {name: path for name, path in names.items() if not name.startswith(".")}


def read(output: str, name: str) -> bytes:
    fs, root = url_to_fs(output)
    return fs.cat_file(f"{root}/{name}")


def parts(output: str) -> int:
    return len([name for name in files(output) if name.startswith("part-")])


class Nodes:
    """A Ray cluster on this machine: a head for the driver, and a node for the actors."""

    def __init__(self, disks: Path | None) -> None:
        os.environ.setdefault(
            "RAY_raylet_start_wait_time_s", "60"
        )  # Ray reads it on import
        os.environ.setdefault(
            "RAY_AUTH_TOKEN", secrets.token_hex(32)
        )  # nodes with their own homes share no token file
        from ray.cluster_utils import Cluster

        self._disks, self._number = disks, 0

        small = {"object_store_memory": 200_000_000}
        self._node = {"num_cpus": 2, **small}
        self._cluster = Cluster()
        self._start({"num_cpus": 1, "include_dashboard": False, **small})
        self._add()
        self.address = self._cluster.address

    def _add(self) -> None:
        """Start a node. If nothing is shared, its home is empty, so it has no copies of files at URIs."""
        self._number += 1
        home = {"HOME": str(self._disks / f"node{self._number}")} if self._disks else {}
        self._start({**self._node, "env_vars": home})

    def _start(self, arguments: Json) -> None:
        """Start a node. A node of Ray gives up after 15 seconds, which are few on a busy machine: try again."""
        failed: Exception | None = None
        for _ in range(NODE_STARTS):
            before = set(psutil.Process().children(recursive=True))
            try:
                self._cluster.add_node(**arguments)
            except Exception as error:  # Ray raises no more special one
                failed = error
            else:
                return
            for process in set(psutil.Process().children(recursive=True)) - before:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        raise SystemExit(
            f"Ray started no node in {NODE_STARTS} attempts: {failed}; its logs are in /tmp/ray"
        )

    def lose_one(self) -> None:
        """Kill the node with all its processes; a new one joins."""
        self._cluster.remove_node(
            next(iter(self._cluster.worker_nodes)), allow_graceful=False
        )
        self._add()

    def close(self) -> None:
        """End the cluster."""
        self._cluster.shutdown()


class Job:
    """The scoring command, which is started again after every kill that ends it."""

    def __init__(self, arguments: argparse.Namespace, output: str) -> None:
        self.arguments, self.output = arguments, output
        self.log = Path(tempfile.mkdtemp()) / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.nodes: Nodes | None = None
        self.left: list[psutil.Process] = []

    def start(self, mode: str) -> bool:
        """Start the command if it is not running; return whether it was started."""
        if self.process is not None:
            return False
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self._command(), *self._engine(mode)], stdout=log, stderr=log
            )
        return True

    def _command(self) -> list[str]:
        given = self.arguments
        words = [
            sys.executable,
            "-c",
            "from xmtc.cli import main; main()",
            "score",
            str(given.model),
        ]
        words += [*map(str, given.input), "--output", self.output, "--id", given.id]
        words += [word for name in given.text for word in ("--text-column", name)]
        return [*words, "--block-rows", str(given.block_rows)]

    def _engine(self, mode: str) -> list[str]:
        if mode == "cluster":
            self.nodes = self.nodes or Nodes(self.arguments.disks)
            return [
                "--engine",
                "ray",
                "--workers",
                "2",
                "--address",
                self.nodes.address,
            ]
        return ["--engine", "local" if mode == "local" else "ray"]

    def wait(self, more: int, delay_s: float) -> None:
        """Wait until this many more parts exist, and a moment longer."""
        assert self.process is not None
        wanted, deadline = parts(self.output) + more, time.monotonic() + PATIENCE_S
        while parts(self.output) < wanted and self.process.poll() is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"no further part for {PATIENCE_S} s; see {self.log}")
            time.sleep(0.02)
        time.sleep(delay_s)
        if self.process.poll() is not None:
            self.problem(
                "the job ended before the last kill (give a larger corpus, or fewer kills)"
            )

    def kill(self, kind: str) -> bool:
        """Kill one of these; return whether there was one."""
        assert self.process is not None
        if kind == "actor":
            return kill_an_actor()
        if kind == "node":
            assert self.nodes is not None
            self.nodes.lose_one()
            return True
        # The next attempt begins while processes of this one may still run.
        self.left += psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None
        return True

    def finish(self, mode: str) -> None:
        """Let the command finish."""
        self.start(mode)
        assert self.process is not None
        if self.process.wait() != 0:
            self.problem("scoring failed")
        self.process = None

    def problem(self, words: str) -> None:
        """Exit with the last line that the job printed."""
        last = self.log.read_text().strip().splitlines()[-1:]
        raise SystemExit(f"{words}: {' '.join(last)}")

    def close(self) -> None:
        """Stop processes that still run."""
        if self.process is not None:
            self.process.kill()
        if self.nodes is not None:
            self.nodes.close()


def kill_an_actor() -> bool:
    """Processes of the cluster that this process started."""
    for process in psutil.Process().children(recursive=True):
        try:
            if any("ScoringActor" in word for word in process.cmdline()):
                process.send_signal(signal.SIGKILL)
                return True
        except psutil.NoSuchProcess:
            continue
    return False


def none_left(processes: list[psutil.Process]) -> bool:
    """Whether children of killed processes have ended, which takes Ray's agents minutes; zombies count as ended."""
    _, alive = psutil.wait_procs(processes, timeout=180)
    return not [
        p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE
    ]


def disturb(job: Job, kinds: list[str], random_: random.Random, most: int) -> None:
    """Kill these one after another, each at a random moment."""
    began = time.monotonic()
    for number, kind in enumerate(kinds):
        fresh = job.start(MODES[kind])
        before = parts(job.output)
        if (
            random_.random() < 0.25
        ):  # before anything is published, or while the job recovers from the last kill
            job.wait(0, random_.uniform(0, 10 if fresh else 2))
        else:
            job.wait(random_.randint(1, most), random_.random())
        while not job.kill(kind):
            job.wait(0, 0.1)
        if "_manifest.json" in files(job.output):
            raise SystemExit(
                "the job was done before the last kill: give a larger corpus, or fewer kills"
            )
        seconds = round(time.monotonic() - began, 1)
        say(
            {
                "kill": number,
                "of": kind,
                "parts_before": before,
                "parts_after": parts(job.output),
                "seconds": seconds,
            }
        )
    before = parts(job.output)
    job.finish(MODES[kinds[-1]])
    seconds = round(time.monotonic() - began, 1)
    say(
        {
            "finished": True,
            "parts_before": before,
            "parts_after": parts(job.output),
            "seconds": seconds,
        }
    )


def table(output: str, name: str, column: str) -> list[object]:
    return pq.read_table(io.BytesIO(read(output, name)), columns=[column])[
        0
    ].to_pylist()


def check(arguments: argparse.Namespace) -> dict[str, bool]:
    output = arguments.output
    manifest = json.loads(read(output, "_manifest.json"))
    named = [part["path"] for part in manifest["parts"]]
    wanted = [
        doc_id
        for path in arguments.input
        for doc_id in table(*path.rsplit("/", 1), arguments.id)
    ]
    found = [doc_id for name in named for doc_id in table(output, name, "doc_id")]
    say(
        {
            "documents": len(found),
            "distinct_ids": len(set(found)),
            "input_rows": len(wanted),
        }
        | {"parts": len(named), "rejected": manifest["rejected"]}
    )
    sums = [hashlib.sha256(read(output, name)).hexdigest() for name in named]
    return {
        "as_many": len(found) + manifest["rejected"] == len(wanted)
        and manifest["documents"] == len(found),
        "same_ids": Counter(map(str, wanted)) == Counter(found)
        if not manifest["rejected"]
        else False,
        "each_once": len(set(found)) == len(found),
        "checksums": sums == [part["sha256"] for part in manifest["parts"]],
        "nothing_else": set(files(output))
        == {*named, "_manifest.json", "_job.json", "_rejected.parquet"},
    }


def same_as_undisturbed(arguments: argparse.Namespace) -> bool:
    other = Job(arguments, f"{arguments.output}_undisturbed")
    began = time.monotonic()
    other.finish("local")
    say({"undisturbed": True, "seconds": round(time.monotonic() - began, 1)})
    both = [
        json.loads(read(folder, "_manifest.json"))["parts"]
        for folder in (arguments.output, other.output)
    ]
    return both[0] == both[1]


def kills(word: str) -> tuple[str, int]:
    """`actor=6`."""
    kind, _, number = word.partition("=")
    if kind not in MODES or not number.isdigit():
        raise argparse.ArgumentTypeError(
            f"{word}: give KIND=NUMBER, KIND being {', '.join(MODES)}"
        )
    return kind, int(number)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("input", nargs="+")
    parser.add_argument("--output", required=True)
    parser.add_argument(
        "--disks", type=Path, help="folder for the homes of nodes that share nothing"
    )
    parser.add_argument("--id", required=True)
    parser.add_argument("--text", action="append", default=[])
    parser.add_argument(
        "--kills", type=kills, nargs="+", default=[("local", 5)], metavar="KIND=NUMBER"
    )
    parser.add_argument("--block-rows", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    kinds = [kind for kind, number in arguments.kills for _ in range(number)]
    random_.shuffle(kinds)
    kinds.sort(
        key=lambda kind: list(MODES.values()).index(MODES[kind])
    )  # engine by engine
    rows = sum(
        pq.read_metadata(io.BytesIO(read(*path.rsplit("/", 1)))).num_rows
        for path in arguments.input
    )
    job = Job(arguments, arguments.output)
    try:
        disturb(
            job,
            kinds,
            random_,
            max(1, rows // arguments.block_rows // (len(kinds) + 1)),
        )
    finally:
        job.close()
    checks = check(arguments) | {"no_process_left": none_left(job.left)}
    if not arguments.once:
        checks["same_bytes"] = same_as_undisturbed(arguments)
    print(json.dumps(checks))
    ratio = sum(checks.values()) / len(checks)
    say(
        {
            "name": "kill_scoring",
            "ratio": round(ratio, 2),
            "bar": 1.0,
            "holds": ratio == 1,
        }
    )
    return 0 if ratio == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
