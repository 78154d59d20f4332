"""How what was typed becomes what a command works with: local copies, configurations, documents."""

import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from xmtc.errors import ConfigError
from xmtc.files import check_page, is_yaml

if TYPE_CHECKING:
    from xmtc.data.readers import Document, Rejected
    from xmtc.init.answers import Answers
    from xmtc.run.config import RunConfig
    from xmtc.score.inputs import Source


def local_path(path: str) -> Path:
    """Return a local path unchanged, or the local copy of a URI."""
    from xmtc.storage.fetch import fetch

    return fetch(path)


def local_model(path: str) -> Path:
    """Return a local model unchanged, or the local copy of a model at a URI or on the Hugging Face Hub."""
    from xmtc.artefact.info import read_description
    from xmtc.run.copies import fetch_model

    model = fetch_model(path)
    read_description(model)
    return model


def local_status(path: str) -> Path:
    """Return a local run directory unchanged, or local copies of the small files of a run at a URI."""
    from xmtc.run.copies import fetch_status

    return fetch_status(path)


def new_page(path: Path | None) -> Path | None:
    """Refuse a place where no page may be written, before hours of work for it."""
    if path is not None:
        check_page(path)
    return path


def config_file(
    config_or_data: str, answers: "Answers", budget: str | None, name: str | None
) -> Path:
    """Return the given configuration, or write one for the given data.

    Args:
        config_or_data: YAML file, or data.
        answers: what the options say of data.
        budget: time that training may take, such as `10m`.
        name: name of the run, if the user gives it.

    Raises:
        ConfigError: a budget, or what is in columns, is given with a configuration.
    """
    if not is_yaml(config_or_data):
        from xmtc.init.command import config_for

        return config_for(config_or_data, answers, budget, name)
    unused = [*answers.options(), *(["--budget"] if budget is not None else [])]
    if unused:
        from xmtc.init.command import data_of

        data = shlex.quote(data_of(Path(config_or_data)))
        raise ConfigError(
            f"{', '.join(unused)}: {config_or_data} says what is trained: leave this out. To choose anew, give the "
            f"data and another name: xmtc train {data} name=OTHER, with these options"
        )
    return Path(config_or_data)


def load_run(
    config: Path, overrides: list[str] | None, print_config: bool
) -> "RunConfig":
    """Read a configuration with its overrides; print it and exit if that is requested."""
    from xmtc.config.load import load_config
    from xmtc.config.plain import dump_yaml
    from xmtc.run.config import RunConfig

    run = load_config(RunConfig, config, overrides or [])
    if print_config:
        print(dump_yaml(run), end="")
        raise typer.Exit()
    return run


def split_inputs(
    inputs: Sequence[str], **options: object
) -> tuple[list[str], dict[str, "Source"]]:
    """Separate files from configurations, and return the files and the source of each configuration, with local copies.

    Args:
        inputs: files and configurations.
        options: values of options about files, see `check_unused`, which are refused if there are only configurations.
    """
    from xmtc.score.inputs import Source
    from xmtc.storage.fetch import fetch_parts

    configurations = [path for path in inputs if is_yaml(path)]
    files = [path for path in inputs if not is_yaml(path)]
    because = (
        None if files else f"{', '.join(configurations)} says how its source is read"
    )
    check_unused(because, **options)
    sources = {}
    for path in configurations:
        run = load_run(Path(path), None, print_config=False)
        source = fetch_parts(run.data.source, run.storage)
        sources[path] = Source(source, run.data.longest_document)
    return files, sources


def check_unused(because: str | None, **options: object) -> None:
    """Refuse options that have no effect.

    Args:
        because: why they have none; None if they have one.
        options: their values, by name; those that were not given are None.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if because is not None and given:
        raise typer.BadParameter(
            f"no effect here, because {because}: leave out {' and '.join(given)}"
        )


def read_documents(
    model: Path,
    inputs: Sequence[str],
    text_column: Sequence[str] | None,
    id_column: str | None,
    longest_document: int | None,
) -> "Iterator[Document | Rejected]":
    """Read documents by the given columns, or by those that the model was trained on."""
    from xmtc.artefact.info import read_description
    from xmtc.score.inputs import read_inputs, text_columns

    trained_on = read_description(model).columns
    files, sources = split_inputs(
        inputs,
        text_column=text_column,
        id=id_column,
        longest_document=longest_document,
    )
    columns = text_columns(text_column, id_column, trained_on, longest_document)
    return read_inputs(files, columns, trained_on, sources)


def show_version(requested: bool) -> None:
    """Print the version, if requested, and exit."""
    if requested:
        print(f"xmtc {version('xmtc')}")
        raise typer.Exit()
