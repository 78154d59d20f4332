"""The Ray engine of `xmtc score`: readers, tokenisers and a pool of scoring actors, streamed with back-pressure.

A row of the dataset is a block. Actors publish their blocks themselves. If the driver, a node or an actor dies, the
next attempt finds the published blocks in the output directory; see `xmtc.score.job`.
"""

import math
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.export import load_model
from xmtc.artefact.info import ModelInfo, check_same, read_info
from xmtc.cluster.connection import join
from xmtc.data.tokenizer import load_pretrained
from xmtc.distributed.config import inside_ray_job
from xmtc.errors import ConfigError, XmtcError
from xmtc.predict.text_scorer import choose_device
from xmtc.preflight.machine import require_answer
from xmtc.run.copies import fetch_model
from xmtc.score.batch import BlockScorer, TokenBlock, tokenise
from xmtc.score.inputs import read_blocks
from xmtc.score.job import Job, Record, publish
from xmtc.score.local import Records, pending_files, run_job
from xmtc.track.console import print_line

RayRow = dict[str, Any]

_READING_CPUS = 0.25
_TOKENISING_CPUS = 0.5
_SMALLEST_SHARE = 1e-4
"""Of a CPU; Ray counts in these."""


def score_on_cluster(
    job: Job,
    *,
    device: str,
    workers: int | None,
    address: str | None = None,
    **limits: Any,
) -> dict[str, Any]:
    """Run the job on a Ray cluster, or on a Ray started here.

    Args:
        job: the job. Workers read input and model and write parts directly: at URIs, or at paths that every node has.
        device: `cuda`: one GPU per actor; `auto`: one GPU per actor if the cluster has any.
        workers: number of scoring actors; None: one per GPU, or one per core.
        address: address of the cluster; None: the cluster whose job this is, otherwise a Ray started here.
        limits: see `xmtc.score.local.run_job`.

    Returns:
        The manifest.

    Raises:
        ConfigError: no cluster answers at the address.
    """
    if address is not None:
        require_answer(address, "--address")
    return run_job(job, partial(_score, job, device, workers, address), **limits)


def _score(
    job: Job,
    device: str,
    workers: int | None,
    address: str | None,
    done: frozenset[str],
) -> Records:
    connected_here = join(address)
    try:
        own_ray = address is None and not inside_ray_job()
        yield from scored_records(job, done, device, workers, may_grow=not own_ray)
    except RayError as error:
        raise _explain(error) from error
    finally:
        if connected_here:
            ray.shutdown()


def scored_records(
    job: Job,
    done: frozenset[str],
    device: str,
    workers: int | None,
    *,
    may_grow: bool,
) -> Iterator[Record]:
    """Yield the records of blocks as actors publish them; blocks in `done` are left out.

    Args:
        job: see `score_on_cluster`.
        done: names of blocks that are published.
        device: see `score_on_cluster`.
        workers: see `score_on_cluster`.
        may_grow: whether the cluster may get more CPUs.

    Raises:
        ConfigError: the cluster has no GPU, and the device needs one.
    """
    files = [{"file": index} for index in pending_files(job, done)]
    if not files:
        return
    resources = ray.cluster_resources()
    gpus = resources.get("GPU", 0)
    gpu = device.startswith("cuda") or (device == "auto" and gpus > 0)
    if gpu and not gpus:
        raise ConfigError(
            f"--device {device}: the Ray cluster has no GPU: use auto or cpu"
        )
    # Without GPUs, one core stays free for reading and tokenising.
    cpus = resources.get("CPU", 0)
    actors = workers or max(1, int(gpus if gpu else cpus - 1))
    context = DataContext.get_current().copy()
    context.target_max_block_size = (
        1  # every row (a block of the corpus) is sent separately
    )
    context.enable_fallback_to_arrow_object_ext_type = (
        True  # a row is one of our objects
    )
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with DataContext.current(context):
        dataset = ray.data.from_items(files, override_num_blocks=len(files))
        # Different resources keep Ray from fusing the two steps, so blocks of one file are tokenised in parallel.
        dataset = dataset.flat_map(
            partial(read_file_blocks, job, done), num_cpus=_READING_CPUS
        )
        dataset = dataset.map(partial(tokenise_block, job), num_cpus=_TOKENISING_CPUS)
        scored = dataset.map(
            ScoringActor,  # pyright: ignore[reportArgumentType]  # Ray's types know functions only
            fn_constructor_args=(job, "cuda" if gpu else "cpu"),
            compute=ActorPoolStrategy(size=actors),
            num_cpus=0 if gpu else cpus_of_actor(actors, cpus, may_grow=may_grow),
            num_gpus=1 if gpu else 0,
        )
        for row in scored.iter_rows():
            yield row["record"]


def cpus_of_actor(actors: int, cpus: float, *, may_grow: bool) -> float:
    """Find out how many CPUs each scoring actor asks for.

    Actors keep what they ask for. If they asked for all there is, reading would wait for them and they for it.

    Args:
        actors: number of scoring actors.
        cpus: of the cluster.
        may_grow: whether it may get more; if it has too few, a warning says so, and the job waits.
    """
    others = _READING_CPUS + _TOKENISING_CPUS
    if actors <= cpus - others:
        return 1
    if may_grow:
        print_line(
            f"warning: {actors + others:g} CPU needed for --workers {actors}, the cluster has {cpus:g}: waiting until "
            "it has more; press Ctrl-C to stop"
        )
        return 1
    share = (cpus - others) / actors
    return max(1, math.floor(share / _SMALLEST_SHARE)) * _SMALLEST_SHARE


def read_file_blocks(job: Job, done: frozenset[str], row: RayRow) -> Iterator[RayRow]:
    """Read the blocks of a file, except those in `done`."""
    index = int(row["file"])
    for raw in read_blocks(
        index, job.files[index], job.settings.columns, job.settings.block_rows, done
    ):
        yield {"raw": raw}


def tokenise_block(job: Job, row: RayRow) -> RayRow:
    """Tokenise a block that was read."""
    tokenizer, info = _tokenizer(job.source, job.model_digest)
    return {
        "tokens": tokenise(row["raw"], tokenizer, info, evidence=job.settings.evidence)
    }


@cache
def _tokenizer(model: str, digest: str) -> tuple[PreTrainedTokenizerFast, ModelInfo]:
    """Load the tokenizer once per process, which tokenises many blocks."""
    folder = _here(model, digest)
    return load_pretrained(str(folder / "tokenizer")), read_info(folder)


def _here(model: str, digest: str) -> Path:
    """Find the model on this machine.

    Raises:
        CheckpointError: it is missing, or differs from the driver's.
    """
    folder = fetch_model(model)
    check_same(folder, digest)
    return folder


class ScoringActor:
    """An actor: scores blocks and publishes them."""

    def __init__(self, job: Job, device: str) -> None:
        torch.set_num_threads(1)
        self.job = job
        self.scorer = BlockScorer(
            load_model(_here(job.source, job.model_digest)),
            job.settings,
            choose_device(device),
            workers=1,
        )

    def __call__(self, row: RayRow) -> RayRow:
        """Score and publish a tokenised block; return its record."""
        block: TokenBlock = row["tokens"]
        return {
            "record": publish(
                self.job, block.name, self.scorer.score(block), block.rejected
            )
        }


def _explain(error: RayError) -> XmtcError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, XmtcError):
            return type(cause)(str(cause))
        cause = getattr(cause, "cause", None) or cause.__cause__
    return XmtcError(f"scoring on Ray failed: {error}")
