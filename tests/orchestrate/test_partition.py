"""Two hosts, as network namespaces with a cable between them, and the cable is pulled for 20 s."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from smoke_jobs import Job
from test_faults import SHORT, assert_same

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces take root and iproute2"
    ),
]

PARTITION_S = 20
INTERFACE = "eth0"  # gloo has to be told, on hosts whose names do not resolve
PORT = 6479


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

    def start_ray(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`ray start`, which stays in the foreground and takes its processes along when it ends."""
        ray = str(Path(sys.executable).with_name("ray"))
        command = [*self.prefix, ray, "start", *arguments, "--num-cpus=1", f"--node-ip-address={self.address}"]
        return subprocess.Popen([*command, "--block", "--disable-usage-stats"], stdout=subprocess.DEVNULL)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    made = tuple(Host(f"xmtc-{os.getpid()}-{i}", f"10.213.77.{i}") for i in (1, 2))
    cable = [f"xmtc{os.getpid() % 100_000}{end}" for end in "ab"]
    try:
        subprocess.run(["ip", "link", "add", cable[0], "type", "veth", "peer", "name", cable[1]], check=True)
        for host, end in zip(made, cable, strict=True):
            subprocess.run(["ip", "netns", "add", host.name], check=True)
            subprocess.run(["ip", "link", "set", end, "netns", host.name, "name", INTERFACE], check=True)
            host.ip("addr", "add", f"{host.address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                host.ip("link", "set", interface, "up")
        yield made[0], made[1]
    finally:
        for host in made:  # and with them the cable
            subprocess.run(["ip", "netns", "del", host.name], check=False)


@pytest.fixture
def cluster(hosts, monkeypatch) -> Iterator[str]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", INTERFACE)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    address = f"{hosts[0].address}:{PORT}"
    nodes = [hosts[0].start_ray("--head", f"--port={PORT}", "--include-dashboard=false")]
    try:
        time.sleep(10)  # until the head listens
        nodes.append(hosts[1].start_ray(f"--address={address}"))
        yield address
    finally:
        for node in nodes:
            family = [node, *psutil.Process(node.pid).children(recursive=True)] if node.poll() is None else []
            for process in family:
                process.kill()
            node.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    job = Job(tmp_path_factory.mktemp("undisturbed"), "undisturbed", *SHORT)
    code, log = job.finish()
    assert code == 0, log[-5000:]
    return job.run


def test_a_partition_of_20_s_is_waited_out(tmp_path, hosts, cluster, undisturbed):
    first, second = hosts
    job = Job(tmp_path, "partitioned", *SHORT, f"distributed.address={cluster}", prefix=first.prefix)
    job.wait_for_a_checkpoint("finetune")
    second.ip("link", "set", INTERFACE, "down")
    pulled = time.monotonic()
    before = job.steps("finetune")
    time.sleep(PARTITION_S)
    assert job.process.poll() is None
    assert job.steps("finetune") - before <= 1, "training went on without the other host"
    second.ip("link", "set", INTERFACE, "up")
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert time.monotonic() - pulled > PARTITION_S
    assert_same(job.run, undisturbed)
