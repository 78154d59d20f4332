"""Check what this machine can do, and whether it has what a configuration needs."""

import importlib.metadata
import logging
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
import torch
from joblib import cpu_count
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xmtc.data.pretrained import resolve_pretrained
from xmtc.distributed.config import native_bfloat16
from xmtc.distributed.strategies.settings import Tool
from xmtc.errors import ConfigError
from xmtc.estimate.estimate import Estimate, estimate, label_lines
from xmtc.models.config import ModelConfig
from xmtc.preflight.disks import GIB, check_disks, check_hidden_states, check_offload
from xmtc.preflight.faiss_package import CPU as FAISS
from xmtc.preflight.faiss_package import check_faiss, faiss_packages
from xmtc.preflight.finding import Check, Status
from xmtc.preflight.places import check_places
from xmtc.preflight.ray_cluster import check_cluster
from xmtc.run.config import RunConfig

log = logging.getLogger(__name__)

_RAY_TIMEOUT_S = 120
# Runs in a separate process: if Ray hangs or dies, the doctor must continue.
_RAY_SCRIPT = """
import os
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray listens on loopback alone
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
assert ray.get(ray.remote(lambda: 41 + 1).remote()) == 42
ray.shutdown()
"""


def run_doctor(config: RunConfig | None = None, console: Console | None = None) -> int:
    """Print the findings as a table. Return the exit code: 1 if something required is missing."""
    checks = doctor(config)
    table = Table("", "check", "found", "what to do", title="xmtc doctor", title_justify="left")
    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[red]missing[/]"}
    for check in checks:
        table.add_row(marks[check.status], escape(check.name), escape(check.detail), escape(check.fix))
    missing = sum(check.status == "missing" for check in checks)
    console = console or Console()
    console.print(table)
    needed_by = "this configuration needs" if config else "training on one machine needs"
    console.print(f"{missing} missing" if missing else f"everything that {needed_by} is here")
    return 1 if missing else 0


def doctor(config: RunConfig | None = None) -> list[Check]:
    """Check the machine; with a configuration, also what it needs. Paths are relative to the working directory."""
    backbone, found = _backbone(config), _estimate(config)
    return [
        *_python_and_packages(),
        *_hardware(config),
        _bf16(config),
        *_build_tools(config),
        *_optional_packages(config),
        _ray(config),
        *(check_cluster(config) if config is not None else ()),
        backbone,
        *check_disks(config),
        *check_offload(config, found if isinstance(found, Estimate) else None),
        *(check_places(config) if config is not None else ()),
        *(check_hidden_states(config) if config is not None and backbone.status != "missing" else ()),
        *(_worker_memory(config, found) if config is not None and found is not None else ()),
    ]


def check_machine(config: RunConfig) -> None:
    """Refuse missing requirements that make a run hang or fail late: cores, GPUs, tools, packages, cluster, disks.

    Warns of bf16 on a processor without instructions for it: MiniLM then takes several times as long as in fp32.

    Raises:
        ConfigError: something that the configuration needs is missing; names all of it.
    """
    machine = [_cores(config), *_enough_gpus(config), *_build_tools(config)]
    cluster = [_ray_package(config), *check_cluster(config)]
    checks = [*cluster, *machine, *_optional_packages(config), *check_disks(config)]
    missing = [check for check in checks if check.status == "missing"]
    if missing:
        lines = [": ".join(filter(None, (check.name, check.detail, check.fix))) for check in missing]
        raise ConfigError("this machine lacks what the configuration needs:\n  " + "\n  ".join(lines))
    bf16 = _bf16(config)
    if bf16.fix and not config.distributed.joins_cluster:
        log.warning("bf16 is %s; %s", bf16.detail, bf16.fix)


def _python_and_packages() -> Iterator[Check]:
    wanted = importlib.metadata.metadata("xmtc")["Requires-Python"] or ""
    fits = SpecifierSet(wanted).contains(platform.python_version())
    fix = "" if fits else f"install Python {wanted}"
    yield Check("python", "ok" if fits else "missing", f"{platform.python_version()} on {platform.system()}", fix)
    requirements = [Requirement(text) for text in importlib.metadata.requires("xmtc") or []]
    core = [item for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})]
    wrong = [problem for item in core if (problem := _requirement_problem(item))]
    if wrong:
        yield Check("packages", "missing", "; ".join(wrong), "pip install -c constraints.txt -e .")
    else:
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "peft"))
        yield Check("packages", "ok", f"all {len(core)} within their ranges: {versions}, …")


def _requirement_problem(requirement: Requirement) -> str:
    try:
        found = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        replaced = requirement.name == FAISS and faiss_packages()
        return "" if replaced else f"{requirement.name} is not installed"
    if requirement.specifier.contains(found, prereleases=True):
        return ""
    return f"{requirement.name} {found} is not {requirement.specifier}"


def _hardware(config: RunConfig | None) -> Iterator[Check]:
    yield _cores(config)
    memory = psutil.virtual_memory()
    low = memory.available < 4 * GIB
    detail = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB available"
    yield Check(
        "memory", "note" if low else "ok", detail, "close other programs, or use smaller batches" if low else ""
    )
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        detail = f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, compute capability {gpu.major}.{gpu.minor}"
        yield Check(f"gpu {index}", "ok", detail)
    yield from _enough_gpus(config)


def _cores(config: RunConfig | None) -> Check:
    cores, threads = psutil.cpu_count(logical=False) or 0, cpu_count()
    detail = f"{cores} cores, {threads} threads usable, PyTorch uses {torch.get_num_threads()}"
    wanted = _wanted_here(config, "cpus_per_worker")
    fix = f"set distributed.workers so that workers × cpus_per_worker is at most {threads}" if wanted > threads else ""
    return Check("cpu", "missing" if fix else "ok", detail + (f"; {wanted:g} needed" if fix else ""), fix)


def _wanted_here(config: RunConfig | None, each: Literal["cpus_per_worker", "gpus_per_worker"]) -> float:
    """Return the resources of this machine that the smallest number of workers takes, if the run starts Ray here."""
    local = config is not None and config.distributed.starts_ray
    return config.distributed.min_workers * getattr(config.distributed, each) if local and config else 0.0


def _enough_gpus(config: RunConfig | None) -> Iterator[Check]:
    """Check that there are enough GPUs for the workers, without using any."""
    have, wanted = torch.cuda.device_count(), _wanted_here(config, "gpus_per_worker")
    if have == 0:
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
        fix = "set distributed.gpus_per_worker=0, or name a cluster in distributed.address" if wanted else ""
        yield Check("gpu", "missing" if wanted else "note", f"none; PyTorch is a {build} build", fix)
    elif wanted > have:
        fix = "set distributed.workers so that workers × gpus_per_worker is at most the number of GPUs"
        yield Check("gpus", "missing", f"{have}, and {wanted:g} needed", fix)


def _bf16(config: RunConfig | None) -> Check:
    wanted = config is not None and config.distributed.precision == "bf16"
    gpu = torch.cuda.is_available()
    where = "GPU" if gpu else "CPU"
    if native_bfloat16(gpu=gpu):
        return Check("bf16", "ok", f"native on this {where}")
    fix = "distributed.precision=fp32 is faster here" if wanted else ""
    return Check("bf16", "note", f"emulated on this {where}: correct, but slow", fix)


def _build_tools(config: RunConfig | None) -> Iterator[Check]:
    needed = config.distributed.chosen_strategy().tools if config else ()
    absent: dict[Tool, Status] = {tool: "missing" if tool in needed else "note" for tool in Tool}
    compiler = shutil.which("c++") or shutil.which("g++")
    fix = "" if compiler else "install g++ (Debian: apt-get install g++); DeepSpeed compiles its CPU collectives"
    yield Check("compiler", "ok" if compiler else absent[Tool.COMPILER], compiler or "no C++ compiler", fix)
    search = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    ninja = shutil.which("ninja", path=search)
    fix = "" if ninja else "pip install ninja"
    yield Check("ninja", "ok" if ninja else absent[Tool.NINJA], ninja or "not found", fix)
    yield _package("deepspeed", "ZeRO strategies", "train", needed=Tool.NINJA in needed)


def _optional_packages(config: RunConfig | None) -> Iterator[Check]:
    hugging_face = config.model.encoder.backbone if config else None
    flash = hugging_face is not None and hugging_face.attention == "flash_attention_2"
    quantized = hugging_face is not None and hugging_face.quantize is not None
    yield check_faiss(faiss_packages(), torch.cuda.device_count())
    yield _package("triton", "compiled kernels for label attention on GPUs", "gpu", needed=False)
    yield _package("bitsandbytes", "4- and 8-bit backbones", "quantize", needed=quantized)
    yield _package("flash_attn", "FlashAttention-2 in backbones", None, needed=flash)
    sinks = {sink.kind for sink in config.track.sinks} if config else set()
    for module, kind in (("tensorboardX", "tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")):
        yield _package(module, f"metrics to {kind}", "track", needed=kind in sinks)


def _package(module: str, purpose: str, extra: str | None, *, needed: bool) -> Check:
    if find_spec(module) is not None:
        return Check(module, "ok", f"installed; {purpose}")
    install = f"pip install 'xmtc[{extra}]'" if extra else f"pip install {module.replace('_', '-')}"
    return Check(module, "missing" if needed else "note", f"not installed; {purpose}", install if needed else "")


def _estimate(config: RunConfig | None) -> Estimate | ConfigError | None:
    try:
        return estimate(config) if config is not None else None
    except ConfigError as error:
        return error


def _worker_memory(config: RunConfig, found: Estimate | ConfigError) -> Iterator[Check]:
    """Estimate one worker's peak memory, see `xmtc train --dry-run`."""
    if isinstance(found, ConfigError):
        yield Check("worker memory", "note", "not known", str(found))
        return
    origin = "" if found.workload.prepared else ", for an assumed corpus, because it is not prepared"
    detail = f"about {found.peak / GIB:,.1f} GiB per worker, {found.trained:,} of {found.parameters:,} parameters train"
    yield Check("worker memory", "ok", detail + origin, "xmtc train CONFIG --dry-run shows the parts")
    first, *cures = label_lines(config, found.workload)
    yield Check("label memory", "note" if cures else "ok", first, "\n".join(cures))


def _ray(config: RunConfig | None) -> Check:
    if config is not None and config.distributed.max_workers == 0:
        return Check("ray", "ok", "not needed: distributed.workers=0 trains in one process")
    if config is not None and config.distributed.address is not None:
        return Check("ray", "note", f"joins the cluster at {config.distributed.address}")
    if find_spec("ray") is None:
        return _ray_package(config)
    try:
        result = subprocess.run(
            [sys.executable, "-c", _RAY_SCRIPT], capture_output=True, text=True, timeout=_RAY_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Check(
            "ray", "missing", f"did not start within {_RAY_TIMEOUT_S} s", "look at /tmp/ray/session_latest/logs"
        )
    if result.returncode == 0:
        return Check("ray", "ok", "starts and runs a task")
    lines = result.stderr.strip().splitlines() or ["no message"]
    status: Status = "missing" if config else "note"
    return Check("ray", status, f"does not start: {lines[-1]}", "distributed.workers=0 trains without Ray")


def _ray_package(config: RunConfig | None) -> Check:
    needed = config is not None and config.distributed.max_workers > 0
    return _package("ray", "several workers and clusters", "train", needed=needed)


def _backbone(config: RunConfig | None) -> Check:
    chosen = (config.model if config else ModelConfig()).encoder
    encoder = chosen.backbone
    if encoder is None:
        return Check("backbone", "ok", f"{chosen.kind}: trained from scratch, nothing to load")
    if encoder.from_config is not None:
        return Check("backbone", "ok", f"random weights ({encoder.from_config.get('model_type')})")
    try:
        path = Path(resolve_pretrained(encoder.name))
    except ConfigError as error:
        return Check("backbone", "missing", encoder.name, str(error))
    if (path / "config.json").is_file():
        return Check("backbone", "ok", f"{encoder.name}: on this machine")
    return _hub_backbone(encoder.name)


def _hub_backbone(name: str) -> Check:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    fix = "download it where there is a network, and give its folder as model.encoder.name"
    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return Check("backbone", "missing", f"{name}: no such folder with a config.json", fix)
    if isinstance(cached, str):
        return Check("backbone", "ok", f"{name}: in the Hugging Face cache")
    if constants.HF_HUB_OFFLINE:
        return Check("backbone", "missing", f"{name}: not in the Hugging Face cache, and HF_HUB_OFFLINE is set", fix)
    return Check("backbone", "note", f"{name}: not on this machine; will be downloaded", fix)
