"""Two hosts, as network namespaces with a cable between them: the cable is pulled, and each has a disk of its own."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from smoke_jobs import SHORT, Job, assert_same

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None,
        reason="network namespaces take root and iproute2",
    ),
]

PARTITION_S = 20
INTERFACE = "eth0"  # gloo has to be told, on hosts whose names do not resolve
RAY_PORT, S3_PORT = 6479, 5479


@dataclass(frozen=True)
class Host:
    """A network namespace with one interface."""

    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-n", self.name, *arguments], check=True)

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.prefix, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start_ray(
        self, *arguments: str, disk: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """`ray start`, which stays in the foreground.

        Args:
            arguments: of it.
            disk: a folder in whose place this host alone has an empty file system.
        """
        own_disk = (
            ["sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', disk] if disk else []
        )
        ray = [
            Path(sys.executable).with_name("ray"),
            "start",
            "--block",
            "--disable-usage-stats",
            "--num-cpus=1",
        ]
        return self.start(
            *own_disk, *ray, f"--node-ip-address={self.address}", *arguments
        )


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    made = tuple(Host(f"xmtc-{os.getpid()}-{i}", f"10.213.77.{i}") for i in (1, 2))
    cable = [f"xmtc{os.getpid() % 100_000}{end}" for end in "ab"]
    try:
        subprocess.run(
            ["ip", "link", "add", cable[0], "type", "veth", "peer", "name", cable[1]],
            check=True,
        )
        for host, end in zip(made, cable, strict=True):
            subprocess.run(["ip", "netns", "add", host.name], check=True)
            subprocess.run(
                ["ip", "link", "set", end, "netns", host.name, "name", INTERFACE],
                check=True,
            )
            host.ip("addr", "add", f"{host.address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                host.ip("link", "set", interface, "up")
        yield made[0], made[1]
    finally:
        for host in made:  # and with them the cable
            subprocess.run(["ip", "netns", "del", host.name], check=False)


@pytest.fixture
def disk(tmp_path) -> Path:
    """A folder that is another one on the second host."""
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def cluster(hosts, disk, monkeypatch) -> Iterator[str]:
    """Ray on both, with a processor each; the address of its head."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", INTERFACE)
    monkeypatch.setenv("HOME", str(disk))  # where copies of what is at URIs go
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    for name, value in s3_environment(hosts[0]).items():
        monkeypatch.setenv(name, value)
    address = f"{hosts[0].address}:{RAY_PORT}"
    with ended(
        hosts[0].start_ray("--head", f"--port={RAY_PORT}", "--include-dashboard=false")
    ):
        time.sleep(10)  # until the head listens
        with ended(hosts[1].start_ray(f"--address={address}", disk=disk)):
            yield address


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """At the end, it and everything below it is killed."""
    try:
        yield
    finally:
        family = (
            [process, *psutil.Process(process.pid).children(recursive=True)]
            if process.poll() is None
            else []
        )
        for member in family:
            member.kill()
        process.wait()


def s3_environment(host: Host) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://{host.address}:{S3_PORT}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": host.address,
    }


@pytest.fixture
def bucket(hosts, cluster) -> Iterator[str]:
    """On an S3 server of the first host; `cluster` has set the environment."""
    server = hosts[0].start(
        sys.executable, "-m", "moto.server", "-H", hosts[0].address, "-p", str(S3_PORT)
    )
    with ended(server):
        time.sleep(10)  # until it listens
        make = "import fsspec; fsspec.filesystem('s3').mkdir('runs')"
        subprocess.run([*hosts[0].prefix, sys.executable, "-c", make], check=True)
        yield "s3://runs"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    job = Job(tmp_path_factory.mktemp("undisturbed"), "undisturbed", *SHORT)
    code, log = job.finish()
    assert code == 0, log[-5000:]
    return job.run


def test_a_partition_of_20_s_is_waited_out(tmp_path, hosts, cluster, undisturbed):
    first, second = hosts
    job = Job(
        tmp_path,
        "partitioned",
        *SHORT,
        f"distributed.address={cluster}",
        prefix=first.prefix,
    )
    job.wait_for_a_checkpoint("finetune")
    second.ip("link", "set", INTERFACE, "down")
    before = job.steps("finetune")
    time.sleep(PARTITION_S)
    assert job.process.poll() is None
    assert job.steps("finetune") - before <= 1, (
        "training went on without the other host"
    )
    second.ip("link", "set", INTERFACE, "up")
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert_same(job.run, undisturbed)


def on_own_disks(
    name: str, bucket: str, disk: Path, cluster: str, *more: str
) -> tuple[str, ...]:
    at_uri = (
        f"data.corpus={bucket}/corpus",
        f"track.directory={bucket}/runs",
        f"storage.cache={disk}",
    )
    return (
        name,
        *SHORT,
        *at_uri,
        "finetune.cache_hidden=false",
        f"distributed.address={cluster}",
        *more,
    )


def test_hosts_with_separate_disks_share_a_run_at_a_uri(
    tmp_path, hosts, disk, cluster, bucket, undisturbed
):
    job = Job(
        tmp_path, *on_own_disks("apart", bucket, disk, cluster), prefix=hosts[0].prefix
    )
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert {hosts[0].address, hosts[1].address} <= set(
        re.findall(r"ip=([\d.]+), pid=\d+\) world_rank", log)
    )
    assert_same(next(disk.glob("runs/*/apart")), undisturbed)


def test_hosts_with_separate_disks_score_a_corpus_at_a_uri(
    tmp_path, hosts, cluster, bucket, undisturbed
):
    """Each host has one processor: the actor takes one of them, and the other host reads and tokenises."""
    rows = [{"id": f"d{i}", "text": f"def f{i}(): return {i}"} for i in range(200)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for here, there in (
        (f"{undisturbed / 'model'}/", f"{bucket}/model/"),
        (tmp_path / "in.jsonl", f"{bucket}/in.jsonl"),
    ):
        put = "import fsspec, sys; fsspec.filesystem('s3').put(sys.argv[1], sys.argv[2], recursive=True)"
        subprocess.run(
            [*hosts[0].prefix, sys.executable, "-c", put, here, there], check=True
        )

    def score(source: str, output: str, *engine: str) -> None:
        words = (
            "score",
            f"{bucket}/model",
            source,
            "-o",
            output,
            "--id",
            "id",
            "--block-rows",
            "16",
            *engine,
        )
        xmtc = [sys.executable, "-c", "from xmtc.cli import main; main()"]
        subprocess.run([*hosts[0].prefix, *xmtc, *words], check=True, timeout=300)

    score(f"{bucket}/in.jsonl", str(tmp_path / "local"))
    score(
        f"{bucket}/in.jsonl",
        f"{bucket}/scores",
        "--engine",
        "ray",
        "--address",
        cluster,
        "--workers",
        "1",
    )
    get = "import fsspec, sys; fsspec.filesystem('s3').get(sys.argv[1], sys.argv[2], recursive=True)"
    subprocess.run(
        [
            *hosts[0].prefix,
            sys.executable,
            "-c",
            get,
            f"{bucket}/scores/",
            f"{tmp_path}/ray/",
        ],
        check=True,
    )
    parts = {
        path.name: path.read_bytes() for path in (tmp_path / "local").glob("part-*")
    }
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "ray").glob("part-*")
    } == parts
    assert len(parts) == 13


def test_an_error_of_all_workers_is_reported_once(
    tmp_path, hosts, disk, cluster, bucket
):
    mistake = "finetune.optimizer.learning_rate=1e30"
    job = Job(
        tmp_path,
        *on_own_disks("mistaken", bucket, disk, cluster, mistake),
        prefix=hosts[0].prefix,
    )
    code, log = job.finish()
    assert code == 1, log[-5000:]
    assert "the model diverged" in log
    assert "resuming after" not in log, "tried again"
