"""Check what this machine can do, and whether it has what a configuration needs."""

import logging
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from xmtc.data.pretrained import PretrainedSource, pretrained_source
from xmtc.errors import ConfigError
from xmtc.estimate.estimate import estimate
from xmtc.estimate.memory import label_lines
from xmtc.models.config import ModelConfig
from xmtc.preflight import machine
from xmtc.preflight.machine import GIB, Check
from xmtc.preflight.places import check_disks, check_estimated_disks, check_source
from xmtc.run.config import RunConfig
from xmtc.track.console import terminal_table

log = logging.getLogger(__name__)

_COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


def run_doctor(config: RunConfig | None = None, console: Console | None = None) -> int:
    """Print the findings as a table. Return the exit code: 1 if something required is missing."""
    checks = doctor(config)
    rows = [
        (
            Text(check.status, _COLOURS[check.status]),
            check.name,
            check.detail,
            check.fix,
        )
        for check in checks
    ]
    table = terminal_table(
        ("", "check", "found", "what to do"), rows, title="xmtc doctor"
    )
    missing = sum(check.status == "missing" for check in checks)
    console = console or Console()
    console.print(table)
    needed_by = (
        "this configuration needs" if config else "training on one machine needs"
    )
    console.print(
        f"{missing} missing" if missing else f"everything that {needed_by} is here"
    )
    return 1 if missing else 0


def doctor(config: RunConfig | None = None) -> list[Check]:
    """Check the machine; with a configuration, also what it needs. Paths are relative to the working directory."""
    checks = [
        *machine.hardware(config),
        machine.bf16(config),
        *machine.build_tools(config),
        *machine.optional_packages(config),
        machine.ray_package(config),
        _backbone(config),
        *check_disks(config),
    ]
    if config is not None:
        checks += [
            *machine.check_cluster(config),
            *check_source(config),
            *_estimated(config),
        ]
    return checks


def check_machine(config: RunConfig) -> None:
    """Refuse missing requirements that make a run hang or fail late: cores, GPUs, tools, packages, cluster, disks.

    Warns of bf16 on a processor without instructions for it: MiniLM then takes several times as long as in fp32.

    Raises:
        ConfigError: something that the configuration needs is missing; names all of it.
    """
    checks = [
        machine.ray_package(config),
        *machine.check_cluster(config),
        machine.cores(config),
        *machine.enough_gpus(config),
        *machine.build_tools(config),
        *machine.optional_packages(config),
        *check_disks(config),
    ]
    missing = [check for check in checks if check.status == "missing"]
    if missing:
        lines = [
            ": ".join(filter(None, (check.name, check.detail, check.fix)))
            for check in missing
        ]
        raise ConfigError(
            "this machine lacks what the configuration needs:\n  " + "\n  ".join(lines)
        )
    bf16 = machine.bf16(config)
    if bf16.fix and not config.distributed.joins_cluster:
        log.warning("bf16 is %s; %s", bf16.detail, bf16.fix)


def _estimated(config: RunConfig) -> Iterator[Check]:
    """Estimate disk space and one worker's peak memory, see `xmtc train --dry-run`."""
    try:
        found = estimate(config)
    except ConfigError as error:
        yield Check("worker memory", "note", "not known", str(error))
        return
    yield from check_estimated_disks(config, found)
    origin = (
        "" if found.size.prepared else ", for an ASSUMED corpus: --dry-run counts yours"
    )
    detail = f"about {found.peak / GIB:,.1f} GiB per worker, {found.trained:,} of {found.parameters:,} parameters train"
    yield Check(
        "worker memory",
        "ok",
        detail + origin,
        "xmtc train CONFIG --dry-run shows the parts",
    )
    first, *cures = label_lines(config, found.size)
    yield Check("label memory", "note" if cures else "ok", first, "\n".join(cures))


def _backbone(config: RunConfig | None) -> Check:
    chosen = (config.model if config else ModelConfig()).encoder
    encoder = chosen.backbone
    if encoder is None:
        return Check(
            "backbone", "ok", f"{chosen.kind}: trained from scratch, nothing to load"
        )
    if encoder.from_config is not None:
        return Check(
            "backbone",
            "ok",
            f"random weights ({encoder.from_config.get('model_type')})",
        )
    try:
        source = pretrained_source(encoder.name)
    except ConfigError as error:
        return Check("backbone", "missing", encoder.name, str(error))
    has_files = (
        source.gguf_file is not None
        or (Path(source.location) / "config.json").is_file()
    )
    if has_files:
        return Check("backbone", "ok", f"{encoder.name}: on this machine")
    return _hub_backbone(encoder.name, source)


def _hub_backbone(name: str, source: PretrainedSource) -> Check:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    fix = "download it where there is a network, and give its folder as model.encoder.name"
    try:
        cached = try_to_load_from_cache(
            source.location, "config.json", revision=source.revision
        )
    except HFValidationError:
        return Check(
            "backbone", "missing", f"{name}: no such folder with a config.json", fix
        )
    if isinstance(cached, str):
        return Check("backbone", "ok", f"{name}: in the Hugging Face cache")
    if constants.HF_HUB_OFFLINE:
        return Check(
            "backbone",
            "missing",
            f"{name}: not in the Hugging Face cache, and HF_HUB_OFFLINE is set",
            fix,
        )
    return Check(
        "backbone", "note", f"{name}: not on this machine; will be downloaded", fix
    )
