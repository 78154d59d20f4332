"""What breaks on a cluster, tried: the run ends by itself or at the next start, with the losses of an undisturbed one.

Each row of the table in docs/how-to/resume.md is a test here or names its own. The lost node is also part of the suite,
which has short forms of the others elsewhere.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import torch
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

import tiny_runs
from s3_server import BUCKET, names, s3
from smoke_jobs import CONFIG, SHORT, STEPS, Job, assert_same, overrides
from xmtc.errors import CheckpointError, DataError
from xmtc.pipeline import train_run

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def undisturbed(folder) -> Path:
    """In one process, which trains as two workers do."""
    torch.set_num_threads(1)
    return train_run(
        tiny_runs.load(
            CONFIG,
            *overrides(folder, "name=undisturbed", "distributed.workers=0", *SHORT),
        )
    )


NO_REGULAR_CHECKPOINT = (*SHORT, "track.checkpoint_every_steps=null")
MORE_EPOCHS = (
    *NO_REGULAR_CHECKPOINT,
    "finetune.phases.0.epochs=3",
    "finetune.phases.1.epochs=6",
    "finetune.patience=0",
)
"""A notice takes a second to reach all workers, in which so small a model would be trained to its end."""


@pytest.fixture(scope="module")
def undisturbed_for_longer(folder) -> Path:
    torch.set_num_threads(1)
    settings = ("name=undisturbed_for_longer", "distributed.workers=0", *MORE_EPOCHS)
    return train_run(tiny_runs.load(CONFIG, *overrides(folder, *settings)))


def assert_resumed(log: str, latest: int = STEPS - 1) -> None:
    resumed = re.findall(rf"finetune: resuming after step (\d+)/{STEPS}", log)
    assert resumed, log[-5000:]
    assert all(4 <= int(step) <= latest for step in resumed)


def start_again(
    folder: Path, name: str, undisturbed: Path, *more: str, latest: int = STEPS - 1
) -> None:
    """The same command continues where the run stopped."""
    job = Job(folder, name, *SHORT, *more)
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert_resumed(log, latest)
    assert_same(job.run, undisturbed)


def assert_gone(processes: list[psutil.Process]) -> None:
    """None of them outlives the job for long; a zombie has ended. Ray's own agents take over a minute to notice."""
    deadline = time.monotonic() + 180
    while left := [
        p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE
    ]:
        assert time.monotonic() < deadline, [p.cmdline() for p in left]
        time.sleep(0.2)


@pytest.mark.faults
def test_a_killed_driver_ends_its_workers_and_the_run_resumes(folder, undisturbed):
    job = Job(folder, "driver", *SHORT)
    job.wait_for_a_checkpoint("finetune")
    family = psutil.Process(job.process.pid).children(recursive=True)
    job.process.kill()
    assert job.process.wait() == -signal.SIGKILL
    assert_gone(family)
    start_again(
        folder, "driver", undisturbed, latest=STEPS
    )  # workers that nobody watches may reach the end


ZERO_3 = "{kind: deepspeed, stage: 3}"


def wait_for_step(job: Job, step: int) -> None:
    while job.process.poll() is None and job.steps("finetune") < step:
        time.sleep(0.01)
    assert job.process.poll() is None, job.log.read_text()[-5000:]


def assert_stopped(
    job: Job, sent_at: int, number: signal.Signals, words: str
) -> tuple[str, str]:
    """One line with the command that goes on, and no trace since the signal.

    Args:
        job: that got the signal.
        sent_at: length of its log then; Ray may have started workers twice before.
        number: the signal.
        words: what the line says.

    Returns:
        The log, and what matched `words`.
    """
    code, log = job.finish(120)
    assert code == 128 + number, log[-5000:]
    since = log[sent_at:]
    assert "Traceback" not in since
    assert "*** SIG" not in since
    lines = [line for line in log.splitlines() if line.startswith("interrupted:")]
    assert len(lines) == 1, log[-5000:]
    said = re.search(words, lines[0])
    assert said is not None, lines[0]
    assert "continue with: xmtc train " in lines[0]
    return log, said[0]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("target", "number", "strategy"),
    [
        ("process group", signal.SIGTERM, "{kind: ddp}"),
        ("driver", signal.SIGINT, "{kind: deepspeed, stage: 2}"),
        ("worker", signal.SIGHUP, ZERO_3),
    ],
    ids=["SIGTERM at the process group", "Ctrl-C", "SIGHUP at a worker"],
)
def test_a_signal_stops_all_workers_after_a_checkpoint(
    folder, undisturbed_for_longer, target, number, strategy
):
    settings = (*MORE_EPOCHS, f"distributed.strategy={strategy}")
    name = f"stopped-{number.name}"
    job = Job(folder, name, *settings, prefix=("setsid",))
    wait_for_step(job, 3)
    family = psutil.Process(job.process.pid).children(recursive=True)
    sent_at = len(job.log.read_text())
    if target == "process group":
        os.killpg(job.process.pid, number)
    else:
        receiver = job.process if target == "driver" else job.workers()[1]
        receiver.send_signal(number)
    words = r"finetune stopped after step \d+, checkpoint written"
    _, said = assert_stopped(job, sent_at, number, words)
    stopped_after = int(said.split()[4].rstrip(","))
    assert_gone(family)
    assert (job.run / "checkpoints" / f"step_{stopped_after:08d}").is_dir()
    assert job.steps("finetune") <= stopped_after + 1
    again = Job(folder, name, *settings)
    code_again, log_again = again.finish()
    assert code_again == 0, log_again[-5000:]
    assert f"finetune: resuming after step {stopped_after}/" in log_again
    assert_same(again.run, undisturbed_for_longer)


def evaluates(run: Path) -> bool:
    record = run / "run.json"
    if not record.exists():
        return False
    stages = json.loads(record.read_text())["stages"]
    return stages.get("evaluate", {}).get("state") == "running"


@pytest.mark.faults
def test_a_second_signal_ends_at_once_and_one_while_evaluating_soon(
    folder, undisturbed_for_longer
):
    job = Job(folder, "twice", *MORE_EPOCHS)
    wait_for_step(job, 3)
    sent_at = len(job.log.read_text())
    job.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    job.process.send_signal(signal.SIGTERM)
    words = "stopped at once|stopped after step"  # the workers may have been quicker
    assert_stopped(job, sent_at, signal.SIGTERM, words)

    long = (*MORE_EPOCHS, "evaluate.resamples=100000")
    job = Job(folder, "twice", *long)
    while job.process.poll() is None and not evaluates(job.run):
        time.sleep(0.01)
    sent_at = len(job.log.read_text())
    job.process.send_signal(signal.SIGTERM)
    # without the first words if its workers have not been started
    words = "interrupted: (evaluate stopped between two results; )?continue with: xmtc"
    assert_stopped(job, sent_at, signal.SIGTERM, words)
    assert not (job.run / "model" / "config.json").exists()
    assert not list(job.run.rglob("*.tmp"))

    code, log = Job(folder, "twice", *MORE_EPOCHS).finish()
    assert code == 0, log[-5000:]
    assert "finetune: already done, skipped" in log
    assert_same(job.run, undisturbed_for_longer)


@pytest.mark.faults
def test_a_hanging_rank_is_killed_after_the_timeout_and_the_run_resumes(
    folder, undisturbed
):
    job = Job(folder, "hung", *SHORT, "distributed.timeout_s=30")
    job.wait_for_a_checkpoint("finetune")
    job.workers()[1].send_signal(signal.SIGSTOP)
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert "distributed.timeout_s" in log
    assert_resumed(log)
    assert_same(job.run, undisturbed)


@pytest.fixture
def cluster(monkeypatch):
    """A head and one more node, with a CPU each: one rank on either."""
    monkeypatch.setenv(
        "RAY_health_check_period_ms", "1000"
    )  # not 3 s; five failures make a node lost
    monkeypatch.setenv(
        "RAY_gcs_rpc_server_reconnect_timeout_s", "10"
    )  # before a driver gives its head up
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def test_a_lost_node_is_replaced_and_the_run_resumes(folder, undisturbed, cluster):
    job = Job(folder, "node", *SHORT, f"distributed.address={cluster.address}")
    job.wait_for_a_checkpoint("finetune")
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    cluster.add_node(num_cpus=1)
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert_resumed(log)
    assert_same(job.run, undisturbed)


@pytest.mark.faults
def test_a_drained_node_stops_the_run_after_a_checkpoint(
    folder, undisturbed_for_longer, cluster
):
    """As an autoscaler announces that it takes a machine away."""
    settings = (*MORE_EPOCHS, f"distributed.address={cluster.address}")
    autoscaler = GcsClient(address=cluster.address)
    job = Job(folder, "drained", *settings)
    wait_for_step(job, 3)
    sent_at = len(job.log.read_text())
    is_accepted, reason = autoscaler.drain_node(
        next(iter(cluster.worker_nodes)).node_id,
        DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"),
        "the machine is taken away",
        int((time.time() + 300) * 1000),
    )
    assert is_accepted, reason
    log, _ = assert_stopped(job, sent_at, signal.SIGTERM, "finetune stopped after step")
    assert "a node of the run is about to be taken away" in log, log[-5000:]
    cluster.add_node(num_cpus=1)
    code, log = Job(folder, "drained", *settings).finish()
    assert code == 0, log[-5000:]
    assert "finetune: resuming after step" in log
    assert_same(job.run, undisturbed_for_longer)


@pytest.mark.faults
def test_without_a_replacement_the_run_resumes_on_fewer_nodes(
    folder, undisturbed, cluster
):
    job = Job(
        folder,
        "fewer",
        *SHORT,
        f"distributed.address={cluster.address}",
        "distributed.workers=[1,2]",
    )
    job.wait_for_a_checkpoint("finetune")
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    code, log = job.finish()
    assert code == 0, log[-5000:]
    assert_resumed(log)
    assert_same(job.run, undisturbed)


@pytest.mark.faults
def test_a_lost_head_ends_the_job_which_resumes_on_a_new_cluster(
    folder, undisturbed, cluster
):
    job = Job(folder, "head", *SHORT, f"distributed.address={cluster.address}")
    job.wait_for_a_checkpoint("finetune")
    cluster.remove_node(cluster.head_node, allow_graceful=False)
    code, log = job.finish(240)
    assert code != 0, log[-5000:]
    start_again(folder, "head", undisturbed)


@pytest.mark.faults
def test_a_run_at_a_uri_survives_the_loss_of_a_machine_with_its_disk(
    folder, undisturbed, tmp_path
):
    """Two ranks on Ray; a machine is a cache folder."""
    with s3(tmp_path / "home"):
        at_uri = (
            f"data.corpus=s3://{BUCKET}/corpus",
            f"track.directory=s3://{BUCKET}/runs",
        )
        lost = Job(
            tmp_path, "moved", *SHORT, *at_uri, f"storage.cache={tmp_path / 'lost'}"
        )
        lost.run = local_copy(tmp_path / "lost")
        lost.wait_for_a_checkpoint("finetune")
        family = psutil.Process(lost.process.pid).children(recursive=True)
        for process in (lost.process, *family):
            process.kill()
        lost.process.wait()
        assert_gone(family)
        shutil.rmtree(tmp_path / "lost")
        job = Job(
            tmp_path, "moved", *SHORT, *at_uri, f"storage.cache={tmp_path / 'new'}"
        )
        code, log = job.finish()
        assert code == 0, log[-5000:]
        assert_resumed(log)
        assert_same(local_copy(tmp_path / "new"), undisturbed)
        assert "model/config.json" in names(f"s3://{BUCKET}/runs/moved")


def local_copy(cache: Path) -> Path:
    """Of the run, once there is one."""
    deadline = time.monotonic() + 120
    while not (found := list(cache.glob("runs/*/moved"))):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> tuple[Path, Path]:
    """The configuration of a run in this process, and an undisturbed one."""
    config = tiny_runs.write_config(tmp_path_factory.mktemp("tiny"))
    return config, train_run(tiny_runs.load(config, "track.checkpoint_every_steps=3"))


def damage(path: Path) -> None:
    """Flip a bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("hurt", "words"),
    [
        (damage, "changed since it was written; prepare the corpus again"),
        (Path.unlink, "missing from the corpus; delete .* and prepare it again"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "bytes instead of"),
    ],
    ids=["flipped", "missing", "truncated"],
)
@pytest.mark.faults
def test_a_damaged_corpus_shard_is_named_before_anything_trains(
    tiny, tmp_path, hurt, words
):
    config, _ = tiny
    corpus = shutil.copytree(tiny_runs.load(config).data.corpus, tmp_path / "corpus")
    shard = next(corpus.glob("train/*.arrow"))
    hurt(shard)
    with pytest.raises(DataError, match=words) as found:
        train_run(
            tiny_runs.load(config, f"name={tmp_path.name}", f"data.corpus={corpus}")
        )
    assert str(shard) in str(found.value)


@pytest.mark.faults
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system takes root")
def test_a_full_disk_ends_the_run_which_resumes_once_there_is_room(
    tiny, tmp_path, monkeypatch
):
    config, undisturbed = tiny
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], check=True
    )
    try:
        settings = tiny_runs.load(
            config,
            "name=full",
            f"track.directory={disk}",
            "track.checkpoint_every_steps=3",
        )
        fill_after_the_first_checkpoint(disk, monkeypatch)
        with pytest.raises(CheckpointError, match="bytes are free"):
            train_run(settings)
        monkeypatch.undo()
        (disk / "ballast").unlink()
        run = train_run(settings)
        for stage in ("plant", "finetune"):
            assert tiny_runs.losses(run, stage) == pytest.approx(
                tiny_runs.losses(undisturbed, stage), rel=1e-6
            )
    finally:
        subprocess.run(["umount", disk], check=True)


def fill_after_the_first_checkpoint(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves too little for a checkpoint, but the metrics of a step."""
    from xmtc.training.checkpoint import CheckpointStore

    save = CheckpointStore.save

    def save_and_fill(self, step, *args, **kwargs):
        path = save(self, step, *args, **kwargs)
        if not (disk / "ballast").exists():
            (disk / "ballast").write_bytes(
                bytes(max(0, shutil.disk_usage(disk).free - 50_000))
            )
        return path

    monkeypatch.setattr(CheckpointStore, "save", save_and_fill)
