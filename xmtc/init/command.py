"""`xmtc init`: inspect data and machine, choose the best recipe that fits the budget, and write its configuration."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from xmtc.config.load import load_config
from xmtc.data.readers.exports.base import REJECTED
from xmtc.data.readers.table_config import (
    added_files,
    document_files,
    table_columns,
)
from xmtc.errors import ConfigError
from xmtc.files import resolve_links, write_text
from xmtc.init.agreement import disagreements
from xmtc.init.answers import NO_ANSWERS, Answers
from xmtc.init.budget import seconds_of
from xmtc.init.data_files import (
    find_files,
    no_files_to_add,
    say_what_was_rejected,
)
from xmtc.run.config import RUN_NAME, RunConfig
from xmtc.run.directory import RunPaths
from xmtc.run.state import check_resume
from xmtc.track.console import print_line

DEFAULT_BUDGET = "1h"


def name_of(data: str) -> str:
    """Make the name of a run from its data: the file name without extension."""
    stem = data.rstrip("/").rsplit("/", 1)[-1].split(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "run"


def write_config(
    data: str,
    answers: Answers,
    *,
    budget: str = DEFAULT_BUDGET,
    name: str | None = None,
    output: Path | None = None,
) -> Path:
    """Choose and write a configuration, and print a summary.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user.
        budget: budget, such as `10m`.
        name: name of the run. Default: the name of `output`, and without that the name of the data.
        output: file to write. Default: `<name>.yaml`.

    Raises:
        ConfigError: the file already exists, the budget is invalid, or a run of this name has another configuration.
        DataError: see `make_plan`.
    """
    from xmtc.init.plan import make_plan
    from xmtc.init.summary import summary

    budget_s = seconds_of(budget)
    name = name or name_of(data if output is None else str(output))
    if not re.fullmatch(RUN_NAME, name):
        raise ConfigError(
            f"name {name}: a run's name has letters, digits, '_', '-', and '.' after the first; change it"
        )
    output = output or Path(f"{name}.yaml")
    _check_free(output)
    write_text(output, "")
    output.unlink()  # it can be written: the machine is measured for a minute now
    plan = make_plan(data, answers, budget_s, name)
    _check_free(output)
    _check_run(plan.config)
    write_text(output, plan.text(output))
    print("\n".join(summary(plan)))
    print(f"written: {output}; next: xmtc train {output}")
    return output


def data_of(config: Path) -> str:
    """Return the first file of training documents of a configuration, or what its source reads instead."""
    source = load_config(RunConfig, config).data.source
    files = [path for _, path in document_files(source)] or source.build().files()
    return str(files[0]) if files else "DATA"


def with_more_files(config: Path, names: Sequence[str]) -> list[str]:
    """Return the overrides by which a configuration reads more files of training documents.

    Raises:
        ConfigError: its source has no files of documents.
        DataError: a file cannot be read.
    """
    source = load_config(RunConfig, config).data.source
    columns = table_columns(source)
    if columns is None:
        raise no_files_to_add(config, source.kind)
    there = [str(path) for _, path in document_files(source)]
    added = [str(path) for path in added_files(source)]
    added += [name for name in dict.fromkeys(names) if name not in there]
    overrides = [f"data.source.files.added={json.dumps(added, ensure_ascii=False)}"]
    if columns.rejected is None and say_what_was_rejected(source.kind, names):
        overrides.append(f"data.source.columns.rejected={REJECTED}")
    return overrides


def _check_free(output: Path) -> None:
    if output.exists():
        raise ConfigError(
            f"{output} already exists: give another name with -o, or delete it"
        )


def _check_run(config: RunConfig) -> None:
    """Refuse the name of a run that has trained with another configuration, which training would refuse later."""
    run = RunPaths.of(config).root
    try:
        check_resume(run, config, "auto")
    except ConfigError:
        raise ConfigError(
            f"{run}: a run of another configuration is there, and has this name; give another one (--name OTHER, or "
            "name=OTHER with xmtc train), or move that folder away"
        ) from None


def config_for(
    data: str,
    answers: Answers = NO_ANSWERS,
    budget: str | None = None,
    name: str | None = None,
) -> Path:
    """Find the configuration that `xmtc init` wrote for some data, or write it now.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user. They decide what a new configuration says, and must agree with one that is there.
        budget: budget of a new configuration, such as `10m`; None: that of `write_config`.
        name: name of the run, if the user gives it. The run of another name has a configuration of its own if there is
            one, or if the options ask for something else than the configuration of the data says.

    Raises:
        ConfigError: the configuration of this name is for other data, or the options say otherwise than it does.
        DataError: see `make_plan`.
    """
    of_data = Path(f"{name_of(data)}.yaml")
    config = of_data if name is None else Path(f"{name}.yaml")
    edits_stay = of_data.exists() and not _differences(of_data, data, answers, budget)
    if not config.exists() and edits_stay:
        config = of_data
    if not config.exists():
        return write_config(
            data, answers, budget=budget or DEFAULT_BUDGET, name=name, output=config
        )
    differences = _differences(config, data, answers, budget)
    if differences:
        raise ConfigError(
            f"{config} exists, and says otherwise: {'; '.join(differences)}. Change {config}, add name=OTHER to write "
            f"another configuration, or delete {config} to write it again"
        )
    _, unread = _files_of(config, data)
    for file in unread:
        print_line(f"warning: {config} does not read {file}")
    print_line(f"using the existing configuration {config}")
    return config


def _differences(
    config: Path, data: str, answers: Answers, budget: str | None
) -> list[str]:
    """List what the user asks for and a configuration does not say, with what it says."""
    are_read, _ = _files_of(config, data)
    if not are_read:
        return [f"it reads other data than {data}"]
    return disagreements(config, answers, budget)


def _files_of(config: Path, data: str) -> tuple[list[str], list[str]]:
    """List which files of the data a configuration reads, and which it does not."""
    source = load_config(RunConfig, config).data.source
    paths = [path for _, path in document_files(source)] or source.build().files()
    files_read = {resolve_links(path) for path in paths}
    are_read: list[str] = []
    unread: list[str] = []
    for names in find_files(data).by_split.values():
        for name in names:
            is_read = resolve_links(Path(name)) in files_read
            (are_read if is_read else unread).append(name)
    return are_read, unread
