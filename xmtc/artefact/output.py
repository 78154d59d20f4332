"""Decide where a model may be written: to a new place, or over an earlier model, but nothing else."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from xmtc.artefact.unfinished import warn_if_not_last
from xmtc.errors import ConfigError
from xmtc.files import parse_json, replacing_directory, resolve_links, writing

FORMAT = "xmtc-model"
HEAD = "head.safetensors"
SMOKE = "smoke.json"
EDITABLE = frozenset({"README.md", "thresholds.json", SMOKE})
"""Files that people may edit by hand and that have no checksum."""
_ELSEWHERE = "give a new or an empty place"


def check_output(output: Path, model: Path) -> None:
    """Make sure that nothing is lost when a model made of `model` is written to `output`.

    Args:
        output: a directory, which may exist.
        model: the model that is read.

    Raises:
        ConfigError: the directory is the model's or the working directory, or holds something else.
    """
    place = resolve_links(output)
    source = resolve_links(model)
    problem = None
    if place == source:
        problem = "is the model itself"
    elif place.is_relative_to(source):
        problem = f"is inside of the model {model}"
    elif Path.cwd().is_relative_to(place):
        problem = f"you are in this folder ({place}), which cannot be replaced"
    elif place.exists() and not place.is_dir():
        problem = "is a file"
    if problem is not None:
        raise ConfigError(f"{output}: {problem}; {_ELSEWHERE}")
    paths = (
        path for path in place.rglob("*") if path.is_symlink() or not path.is_dir()
    )
    settings = place / "config.json"
    content = settings.read_bytes() if settings.is_file() else None
    check_replaceable(
        str(output), [path.relative_to(place).as_posix() for path in paths], content
    )


def check_replaceable(place: str, names: Collection[str], config: bytes | None) -> None:
    """Make sure that a directory is empty, or holds only a model.

    Args:
        place: the directory or URI, for messages.
        names: names of all its files.
        config: content of its `config.json`.

    Raises:
        ConfigError: it holds something else.
    """
    foreign = sorted(set(names) - model_files(config))
    if foreign:
        raise ConfigError(
            f"{place}: {foreign[0]} is not an exported model's: move it away, or {_ELSEWHERE}"
        )


def model_files(config: bytes | None) -> set[str]:
    """List the files of the model with this `config.json`; empty if it is not xmtc's."""
    try:
        content = parse_json(config or b"null")
    except ValueError:
        return set()
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return set()
    return {"config.json", *EDITABLE, *content.get("sha256", {})}


def model_of_run(folder: Path) -> Path:
    """Return the folder `model` of a run, or the given folder if it is no run with a model; warn of one that is not the
    run's last.
    """
    inner = folder / "model"
    is_run = not (folder / "config.json").exists() and (inner / "config.json").is_file()
    model = inner if is_run else folder
    if (model / "config.json").is_file():
        warn_if_not_last(model)
    return model


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """Make a temporary directory that replaces `directory` at the end, or is removed on failure.

    The caller checks with `check_output` that the directory may be replaced.

    Raises:
        StorageError: it cannot be written.
    """
    with writing(directory), replacing_directory(resolve_links(directory)) as temporary:
        yield temporary
