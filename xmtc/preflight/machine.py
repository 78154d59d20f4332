"""Check what this machine has, and whether it has what a configuration needs: programs, packages, cores, GPUs, Ray."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
import torch
from joblib import cpu_count

from xmtc.distributed.config import native_bfloat16
from xmtc.errors import ConfigError
from xmtc.run.config import RunConfig

GIB = 2**30
Status = Literal["ok", "note", "missing"]
_PATIENCE_S = 5.0
_FOUND_BY_RAY = ("auto", "local")
_OWN = frozenset({"memory", "object_store_memory"})
"""Resources of Ray on one machine, in addition to cores, GPUs and resources whose names contain a colon."""


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: name of the check.
        status: `ok`; `note` for a limitation; `missing` for a requirement that is not met.
        detail: what was found.
        fix: what to do, if anything.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


def found(
    name: str, fine: bool, detail: str, fix: str, *, needed: bool = True
) -> Check:
    """Make a finding that is ok, or else missing where it is needed and a note where it is not, with the fix."""
    status: Status = "ok" if fine else "missing" if needed else "note"
    return Check(name, status, detail, "" if fine else fix)


def hardware(config: RunConfig | None) -> Iterator[Check]:
    """Check cores, memory and GPUs."""
    yield cores(config)
    memory = psutil.virtual_memory()
    detail = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB available"
    fix = "close other programs, or use smaller batches"
    yield found("memory", memory.available >= 4 * GIB, detail, fix, needed=False)
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        detail = f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, compute capability {gpu.major}.{gpu.minor}"
        yield Check(f"gpu {index}", "ok", detail)
    yield from enough_gpus(config)


def cores(config: RunConfig | None) -> Check:
    """Check that there are enough threads for the workers."""
    physical, threads = psutil.cpu_count(logical=False) or 0, cpu_count()
    detail = f"{physical} cores, {threads} threads usable, PyTorch uses {torch.get_num_threads()}"
    wanted = _wanted_here(config, "cpus_per_worker")
    detail += f"; {wanted:g} needed" if wanted else ""
    fix = f"set distributed.workers so that workers × cpus_per_worker is at most {threads}"
    return found("cpu", wanted <= threads, detail, fix)


def _wanted_here(
    config: RunConfig | None, each: Literal["cpus_per_worker", "gpus_per_worker"]
) -> float:
    """Return the resources of this machine that the smallest number of workers takes, if the run starts Ray here."""
    local = config is not None and config.distributed.starts_ray
    return (
        config.distributed.min_workers * getattr(config.distributed, each)
        if local and config
        else 0.0
    )


def enough_gpus(config: RunConfig | None) -> Iterator[Check]:
    """Check that there are enough GPUs for the workers, without using any."""
    have, wanted = torch.cuda.device_count(), _wanted_here(config, "gpus_per_worker")
    if have == 0:
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
        fix = (
            "set distributed.gpus_per_worker=0, or name a cluster in distributed.address"
            if wanted
            else ""
        )
        yield Check(
            "gpu",
            "missing" if wanted else "note",
            f"none; PyTorch is a {build} build",
            fix,
        )
    elif wanted > have:
        fix = "set distributed.workers so that workers × gpus_per_worker is at most the number of GPUs"
        yield Check("gpus", "missing", f"{have}, and {wanted:g} needed", fix)


def bf16(config: RunConfig | None) -> Check:
    """Check whether bfloat16 is native here."""
    wanted = config is not None and config.distributed.precision == "bf16"
    gpu = torch.cuda.is_available()
    where = "GPU" if gpu else "CPU"
    if native_bfloat16(gpu=gpu):
        return Check("bf16", "ok", f"native on this {where}")
    fix = "distributed.precision=fp32 is faster here" if wanted else ""
    return Check("bf16", "note", f"emulated on this {where}: correct, but slow", fix)


def build_tools(config: RunConfig | None) -> Iterator[Check]:
    """Check the programs and libraries that the strategy needs."""
    needed = config is not None and config.distributed.chosen_strategy().compiles
    compiler = shutil.which("c++") or shutil.which("g++")
    fix = "install g++ (Debian: apt-get install g++); DeepSpeed compiles its CPU collectives"
    yield found(
        "compiler", bool(compiler), compiler or "no C++ compiler", fix, needed=needed
    )
    search = os.pathsep.join(
        [os.environ.get("PATH", ""), str(Path(sys.executable).parent)]
    )
    ninja = shutil.which("ninja", path=search)
    yield found(
        "ninja", bool(ninja), ninja or "not found", "pip install ninja", needed=needed
    )
    yield _package("deepspeed", "ZeRO strategies", "train", needed=needed)


def optional_packages(config: RunConfig | None) -> Iterator[Check]:
    """Check packages that only some configurations need."""
    hugging_face = config.model.encoder.backbone if config else None
    flash = hugging_face is not None and hugging_face.attention == "flash_attention_2"
    quantized = hugging_face is not None and hugging_face.quantize is not None
    by_openvino = hugging_face is not None and hugging_face.engine == "openvino"
    yield _package(
        "triton", "compiled kernels for label attention on GPUs", "gpu", needed=False
    )
    yield _package(
        "bitsandbytes", "4- and 8-bit backbones", "quantize", needed=quantized
    )
    yield _package("flash_attn", "FlashAttention-2 in backbones", None, needed=flash)
    yield _package(
        "openvino", "faster encoders on CPUs", "openvino", needed=by_openvino
    )
    kinds = (
        {one.kind for one in (*config.model.scorers, *config.track.sinks)}
        if config
        else set()
    )
    yield _package("omikuji", "the scorer `tree`", "trees", needed="tree" in kinds)
    for module, kind in (
        ("tensorboardX", "tensorboard"),
        ("wandb", "wandb"),
        ("mlflow", "mlflow"),
    ):
        yield _package(module, f"metrics to {kind}", "track", needed=kind in kinds)


def _package(module: str, purpose: str, extra: str | None, *, needed: bool) -> Check:
    if find_spec(module) is not None:
        return Check(module, "ok", f"installed; {purpose}")
    install = (
        f"pip install 'xmtc[{extra}]'"
        if extra
        else f"pip install {module.replace('_', '-')}"
    )
    return found(
        module,
        False,
        f"not installed; {purpose}",
        install if needed else "",
        needed=needed,
    )


def ray_package(config: RunConfig | None) -> Check:
    """Check that Ray is installed where there are workers."""
    needed = config is not None and config.distributed.max_workers > 0
    return _package("ray", "several workers and clusters", "train", needed=needed)


def check_cluster(config: RunConfig) -> Iterator[Check]:
    """Check the address of the cluster; without a cluster, the custom resources of workers."""
    distributed = config.distributed
    if (
        distributed.max_workers
        and distributed.address is not None
        and distributed.address not in _FOUND_BY_RAY
    ):
        yield _answer(distributed.address)
    unknown = [
        name
        for name in distributed.resources_per_worker
        if name not in _OWN and ":" not in name
    ]
    if distributed.starts_ray and unknown:
        fix = "name a cluster that has it in distributed.address, or leave it out of distributed.resources_per_worker"
        yield Check(
            "resources",
            "missing",
            f"no {unknown[0]!r}: a Ray on one machine has no such resource",
            fix,
        )


def _answer(address: str) -> Check:
    try:
        require_answer(address, "distributed.address")
    except ConfigError as error:
        return Check("cluster", "missing", str(error))
    return Check("cluster", "ok", f"{address} answers")


def require_answer(address: str, setting: str) -> None:
    """Try to connect, because Ray itself would try for minutes.

    Args:
        address: `HOST:PORT`, with or without `ray://`.
        setting: name of the setting, for the message.

    Raises:
        ConfigError: nothing listens there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection(
            (host.strip("[]"), int(port)), timeout=_PATIENCE_S
        ).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{setting} {address}: no Ray cluster answers there; give HOST:PORT of its head, or leave it out"
        ) from error
