"""Preparation as Ray tasks makes the corpus that processes of this machine make; a sweep's runs go side by side."""

import json
import os
import signal
import time
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
import ray

import tiny_runs
from xmtc.cluster import connection
from xmtc.cluster.connection import join
from xmtc.cluster.tasks import TaskResources, cluster_mapper, map_tasks
from xmtc.data.prepare import prepare
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.sweep.sweep import sweep
from xmtc.sweep.train import train_all

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def own_ray():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", partial(ray.init, num_cpus=2))
        assert join(None)
    yield
    ray.shutdown()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    }


def test_same_bytes_and_paths_from_the_working_directory(tmp_path, monkeypatch):
    config = tiny_runs.load(tiny_runs.write_config(tmp_path), "data.corpus=corpus")
    monkeypatch.chdir(tmp_path)
    ours = contents(prepare(config.data, None, map_unordered=map_tasks).path)
    assert any(name.startswith("train/") for name in ours)
    (tmp_path / "corpus").rename(tmp_path / "on_ray")
    assert ours == contents(prepare(config.data, None).path)


def test_rays_processes_know_their_cluster():
    """Ray's helpers would otherwise ask the newest Ray on the machine, which may be another run's."""
    address = ray.remote(lambda: os.environ["RAY_ADDRESS"]).remote()
    assert ray.get(address) == ray.get_runtime_context().gcs_address


def test_every_item_once_and_an_error_as_it_was_raised():
    def refuse_three(number: int) -> int:
        if number == 3:
            raise DataError("row 3 is wrong")
        return number

    assert sorted(map_tasks(lambda number: 2 * number, range(50))) == [
        2 * i for i in range(50)
    ]
    with pytest.raises(DataError, match=r"^row 3 is wrong$"):
        list(map_tasks(refuse_three, range(5)))


def test_a_task_whose_process_dies_is_named_and_the_others_go_on():
    def die_at_one(number: int) -> int:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    found = map_tasks(
        die_at_one,
        range(3),
        lost=lambda number, error: f"{number}: {type(error).__name__}",
    )
    assert sorted(map(str, found)) == ["0", "1: WorkerCrashedError", "2"]


def test_a_local_ray_listens_on_loopback_alone():
    assert list(map_tasks(lambda number: number, range(2)))  # a worker listens too
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = []
    for process in family:
        with suppress(psutil.NoSuchProcess):  # a worker that Ray did not need ends
            found += [
                (c.laddr.ip, process.name())
                for c in process.net_connections("inet")
                if not c.raddr
            ]
    addresses = [(ip_address(ip.removeprefix("::ffff:")), name) for ip, name in found]
    assert len(addresses) > 5
    assert [
        (str(address), name) for address, name in addresses if not address.is_loopback
    ] == []


@pytest.mark.parametrize(
    "error", [Exception("too\nbusy"), RuntimeError("too\nbusy"), OSError("too\nbusy")]
)
def test_a_ray_that_does_not_start_is_one_line(monkeypatch, error):
    def init(**_: object) -> None:
        raise error

    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connection.ray, "init", init)
    with pytest.raises(
        ConfigError, match=r"^Ray at 'local' cannot be joined or started: too$"
    ):
        connection.join(None)


def test_only_a_cluster_that_is_joined_prepares(tmp_path, monkeypatch):
    path = tiny_runs.write_config(tmp_path)
    assert cluster_mapper(tiny_runs.load(path, "distributed.workers=2")) is None
    assert (
        cluster_mapper(
            tiny_runs.load(path, "distributed.workers=2", "distributed.address=auto")
        )
        is not None
    )


@pytest.mark.faults  # slow: a process on Ray for each run
def test_a_sweep_on_a_cluster_trains_side_by_side_and_names_what_fails(tmp_path):
    path = tiny_runs.write_config(tmp_path)
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "grid: {plant.cache_hidden: [false]}\nseeds: [1, 2]\nmetrics: [p@1]\n"
    )

    def train(run):
        (tmp_path / f"begun-{run.seed}").touch()
        deadline = time.monotonic() + 60
        while (
            len(list(tmp_path.glob("begun-*"))) < 2
        ):  # one after the other never gets beyond this
            assert time.monotonic() < deadline, "the other run does not begin"
            time.sleep(0.05)
        if run.seed == 2:
            raise DataError("the disk is on fire")
        return train_run(run)

    assert sweep(path, grid, ["distributed.address=auto"], train) == 1
    (cell,) = json.loads((tmp_path / "runs" / "tiny-sweep" / "sweep.json").read_text())[
        "cells"
    ]
    assert len(cell["runs"]) == 1
    assert cell["failed"] == {"2": "DataError: the disk is on fire"}


def test_runs_side_by_side_get_what_the_grid_gives_their_workers(tmp_path, monkeypatch):
    """Otherwise tasks hold all cores, and wait for their workers forever."""
    asked = []
    monkeypatch.setattr(connection, "join", lambda address: None)
    monkeypatch.setattr("xmtc.sweep.train.prepare_stage", lambda run: None)
    monkeypatch.setattr(
        "xmtc.cluster.tasks.map_tasks",
        lambda attempt, runs, needs, lost: asked.append(needs) or [],
    )
    settings = "distributed.address=auto", "distributed.cpus_per_worker=1.5"
    runs = [
        tiny_runs.load(
            tiny_runs.write_config(tmp_path),
            *settings,
            f"distributed.workers={workers}",
        )
        for workers in (0, 2)
    ]
    train_all(runs, runs[0], train_run)
    assert asked == [TaskResources(cpus=3, gpus=0, reserved=False)]


def test_as_many_runs_as_the_cluster_holds():
    assert TaskResources(cpus=1).room() == 2
    assert TaskResources(cpus=2, reserved=False).room() == 1
    assert TaskResources(gpus=1).room() == 1  # it waits for a machine that has one
